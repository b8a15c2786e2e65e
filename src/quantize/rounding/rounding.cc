// Chooses the algorithm of a linear: the one asked for, or the search when its data do not suffice.
#include "quantize/rounding/rounding.h"

#include <cmath>

#include "base/check.h"
#include "base/concat.h"
#include "quantize/rounding/gptq_factor.h"
#include "quantize/rounding/row_rounders.h"

namespace nibble {
namespace {

constexpr std::string_view kNotPositive = "its second moment cannot be factorised";

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

/// The reason why these statistics do not suffice for the algorithm, or empty.
std::string trouble(const RoundingRequest& request) {
  const InputStatistics* statistics = request.statistics;
  if (statistics == nullptr) return "no calibration";
  CHECK(statistics->cols == request.cols && statistics->kind == moment_needed(request.algorithm),
        "statistics of ", statistics->cols, " columns for ", request.cols);
  if (statistics->tokens < request.tokens_min)
    return concat(statistics->tokens, " tokens of ", request.tokens_min);
  const double mean = mean_square(*statistics);
  if (!(mean > 0.0)) return "its inputs were all zero";
  if (!std::isfinite(mean)) return "the squares of its inputs overflow";
  return "";
}

std::unique_ptr<RowRounder> make_rounder(const RoundingRequest& request) {
  switch (request.algorithm) {
    case RoundAlgorithm::diagonal:
      return make_diagonal_rounder(*request.statistics, request.path);
    case RoundAlgorithm::blocks:
      return make_block_rounder(*request.statistics, request.path);
    case RoundAlgorithm::gptq:
      return make_gptq_rounder(*request.statistics, request.path);
    default:
      return std::make_unique<DataFreeRounder>(request.algorithm, request.path);
  }
}

}  // namespace

double mean_square(const InputStatistics& statistics) {
  double total = 0;
  for (int64_t i = 0; i < statistics.cols; ++i) total += statistics.square(i);
  return total / static_cast<double>(statistics.cols) / static_cast<double>(statistics.tokens);
}

std::vector<float> column_weights(const InputStatistics& statistics) {
  const double unit = mean_square(statistics) * static_cast<double>(statistics.tokens);
  std::vector<float> weights;
  for (int64_t i = 0; i < statistics.cols; ++i)
    weights.push_back(static_cast<float>(statistics.square(i) / unit + kDamping));
  return weights;
}

SecondMoment moment_needed(RoundAlgorithm algorithm) {
  switch (algorithm) {
    case RoundAlgorithm::diagonal:
      return SecondMoment::diagonal;
    case RoundAlgorithm::blocks:
      return SecondMoment::blocks;
    case RoundAlgorithm::gptq:
      return SecondMoment::full;
    default:
      return SecondMoment::none;
  }
}

SecondMoment moment_needed(RoundAlgorithm algorithm, WeightFormat format) {
  switch (format) {
    case WeightFormat::plain:
      return SecondMoment::none;
    case WeightFormat::nvfp4:
      return moment_needed(algorithm);
    default:
      return algorithm == RoundAlgorithm::gptq ? SecondMoment::full : SecondMoment::none;
  }
}

Fp8Rounding prepare_fp8_rounding(const RoundingRequest& request) {
  if (request.algorithm != RoundAlgorithm::gptq) return {};
  if (request.cols % kMomentBlock != 0)
    return {.fallback = concat("its ", request.cols, " columns are no multiple of ", kMomentBlock)};
  Fp8Rounding rounding = {.fallback = trouble(request)};
  if (!rounding.fallback.empty()) return rounding;
  std::optional<GptqFactor> factor = make_gptq_factor(*request.statistics);
  if (factor) {
    rounding.gptq = std::make_unique<Fp8GptqRounder>(std::move(*factor), request.path);
  } else {
    rounding.fallback = kNotPositive;
  }
  return rounding;
}

Rounding prepare_rounding(const RoundingRequest& request) {
  CHECK(request.cols % kNvfp4Group == 0, "columns ", request.cols);
  Rounding rounding = {.algorithm = request.algorithm, .fallback = {}, .rows = {}};
  if (!is_data_free(request.algorithm)) rounding.fallback = trouble(request);
  if (rounding.fallback.empty()) {
    rounding.rows = make_rounder(request);
    if (rounding.rows == nullptr) rounding.fallback = kNotPositive;
  }
  if (rounding.fallback.empty()) return rounding;
  rounding.algorithm = RoundAlgorithm::search;
  rounding.rows = std::make_unique<DataFreeRounder>(RoundAlgorithm::search, request.path);
  return rounding;
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
