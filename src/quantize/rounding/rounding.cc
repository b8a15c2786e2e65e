// Chooses the algorithm of a linear: the one asked for, or the search when its data do not suffice.
#include "quantize/rounding/rounding.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/concat.h"
#include "quantize/rounding/device_gptq.h"
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

/// True if a device does GPTQ of this input.
bool on_device(const RoundingRequest& request) {
  return request.device != nullptr && request.device->takes(request.cols);
}

std::unique_ptr<RowRounder> make_rounder(const RoundingRequest& request) {
  switch (request.algorithm) {
    case RoundAlgorithm::diagonal:
      return make_diagonal_rounder(*request.statistics, request.path);
    case RoundAlgorithm::blocks:
      return make_block_rounder(*request.statistics, request.path);
    case RoundAlgorithm::gptq:
      if (on_device(request))
        return make_device_gptq_rounder(*request.statistics, *request.device, request.path);
      return make_gptq_rounder(*request.statistics, request.path);
    default:
      return std::make_unique<DataFreeRounder>(request.algorithm, request.path);
  }
}

std::unique_ptr<Fp8Rounder> make_fp8_rounder(const RoundingRequest& request) {
  if (on_device(request)) return make_device_fp8_rounder(*request.statistics, *request.device);
  std::optional<GptqFactor> factor = make_gptq_factor(*request.statistics);
  if (!factor) return nullptr;
  return std::make_unique<Fp8GptqRounder>(std::move(*factor), request.path);
}

}  // namespace

RoundStatistics sum_by_tiles(
    const TensorView& weights, const RoundedBytes& out, ThreadPool& threads,
    const std::function<RoundStatistics(const TensorView&, const RoundedBytes&)>& statistics_of) {
  constexpr int64_t kTileRows = 8;
  const int64_t all = weights.shape[0], cols = weights.shape[1];
  std::vector<RoundStatistics> by_tile(static_cast<size_t>((all + kTileRows - 1) / kTileRows));
  threads.parallel_for(by_tile.size(), 1, [&](size_t begin, size_t end) {
    for (size_t tile = begin; tile < end; ++tile) {
      const int64_t row = static_cast<int64_t>(tile) * kTileRows;
      const int64_t rows = std::min(kTileRows, all - row);
      const auto part = [&](std::span<uint8_t> bytes, int64_t per_row) {
        return bytes.subspan(static_cast<size_t>(row * per_row),
                             static_cast<size_t>(rows * per_row));
      };
      by_tile[tile] =
          statistics_of(rows_of(weights, row, rows),
                        {part(out.codes, cols / 2), part(out.scales, cols / kNvfp4Group)});
    }
  });
  RoundStatistics sum;
  for (const RoundStatistics& tile : by_tile) sum += tile;
  return sum;
}

RoundStatistics RowRounder::round_block(const TensorView& weights, int exponent,
                                        const RoundedBytes& out, ThreadPool& threads) const {
  return sum_by_tiles(weights, out, threads, [&](const TensorView& rows, const RoundedBytes& part) {
    return round(rows, exponent, part.codes, part.scales);
  });
}

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
  rounding.gptq = make_fp8_rounder(request);
  if (rounding.gptq == nullptr) rounding.fallback = kNotPositive;
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
