// Which algorithm a linear gets: the one asked for, or the search when its data do not suffice.
#include "quantize/rounding.h"

#include "base/check.h"

namespace nibble {
namespace {

class DataFreeRounder final : public RowRounder {
 public:
  DataFreeRounder(RoundAlgorithm algorithm, RoundPath path) : algorithm_(algorithm), path_(path) {}
  RoundStatistics round(const TensorView& weights, int exponent, std::span<uint8_t> codes,
                        std::span<uint8_t> scales) const override {
    return round_nvfp4_rows(weights, {.exponent = exponent, .algorithm = algorithm_, .path = path_},
                            codes, scales);
  }

 private:
  RoundAlgorithm algorithm_;
  RoundPath path_;
};

}  // namespace

SecondMoment moment_needed(RoundAlgorithm) { return SecondMoment::none; }

Rounding prepare_rounding(const RoundingRequest& request) {
  CHECK(request.cols % kNvfp4Group == 0, "columns ", request.cols);
  return {.algorithm = request.algorithm,
          .fallback = {},
          .rows = std::make_unique<DataFreeRounder>(request.algorithm, request.path)};
}

RoundedMatrix round_matrix(const Rounding& rounding, const TensorView& weights, int exponent) {
  const auto count = static_cast<size_t>(weights.shape[0] * weights.shape[1]);
  RoundedMatrix out{.codes = std::vector<uint8_t>(count / 2),
                    .scales = std::vector<uint8_t>(count / kNvfp4Group),
                    .statistics = {}};
  out.statistics = rounding.rows->round(weights, exponent, out.codes, out.scales);
  return out;
}

}  // namespace nibble
