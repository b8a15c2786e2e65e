// GPTQ (arXiv 2210.17323) to NVFP4: the columns of a row are rounded in turn, and the error of each
// is spread over the columns still to come, in the way that changes the output least on the inputs
// seen (gptq_factor.h). A block's scale is searched when its turn comes, on the weights as
// corrected so far (errors weighted by what each costs). Then codes and scales are changed as long
// as that lowers the same loss (gptq_descent.h). The stock format is all that is written.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "quantize/rounding/gptq_descent.inl.h"
#include "quantize/rounding/gptq_feedback.inl.h"
#include "quantize/rounding/row_rounders.h"
#include "quantize/rounding/weighted_block.inl.h"

namespace nibble {
namespace {

/// Up to kFeedbackRows rows, columns in the factor's order.
struct Tile {
  int rows;
  const float* original;  // [rows, K]
  float* u;               // [rows, K]: the same, and then what it is rounded to
  float* gradient;        // [rows, K]: room for H (q - w)
  const GptqFactor& factor;
  const DescentMoment& moment;
  uint8_t* codes;   // [rows, K/2]
  uint8_t* scales;  // [rows, K/16]
  int64_t cols() const { return factor.cols; }
};

template <int W>
NIBBLE_INLINE void round_tile(const Tile& tile) {
  const int64_t cols = tile.cols();
  detail::feed_back_rows<W>(
      tile.factor.factors.data(),
      {.rows = tile.rows, .cols = cols, .u = tile.u, .gradient = tile.gradient},
      [&](int r, int64_t b, float* errors) __attribute__((always_inline)) {
        float* u = tile.u + r * cols + b;
        const detail::SearchBlock block = detail::search_block<W>(u);
        const int code = detail::diagonal_code<W>(block, tile.factor.costs.data() + b);
        const float scale = detail::kBlockTables.scale[static_cast<size_t>(code)];
        detail::feed_back(
            u, tile.factor.factors.data() + b * cols + b, cols,
            errors, [&](int, float x) __attribute__((always_inline)) {
              return detail::nearest_e2m1(x, scale);
            });
        tile.scales[r * (cols / 16) + tile.factor.order[static_cast<size_t>(b / 16)]] =
            block.amax == 0.0F ? kZeroBlockScale : static_cast<uint8_t>(code);
      });
}

/// Codes of the rounded tile, and what it adds to the statistics.
template <int W>
NIBBLE_INLINE void encode_tile(const Tile& tile, RoundStatistics& statistics) {
  const int64_t cols = tile.cols();
  for (int64_t b = 0; b < cols; b += 16)
    for (int r = 0; r < tile.rows; ++r) {
      const int64_t at = tile.factor.order[static_cast<size_t>(b / 16)];
      const float* original = tile.original + r * cols + b;
      const float* rounded = tile.u + r * cols + b;
      const uint64_t packed =
          detail::encode_block<W>(rounded, detail::search_block<W>(original),
                                  tile.scales[r * (cols / 16) + at], statistics);
      std::memcpy(tile.codes + r * (cols / 2) + at * 8, &packed, 8);
      detail::add_true_errors<W>(original, rounded, statistics);
    }
}

struct TileJob {
  const Tile& tile;
  int sweeps;
  RoundStatistics& statistics;

  template <int W>
  NIBBLE_INLINE void run() const {
    round_tile<W>(tile);
    detail::descend<W>({.rows = tile.rows,
                        .u = tile.u,
                        .gradient = tile.gradient,
                        .moment = tile.moment,
                        .order = tile.factor.order.data(),
                        .scales = tile.scales},
                       sweeps);
    encode_tile<W>(tile, statistics);
  }
};

class GptqRounder final : public RowRounder {
 public:
  GptqRounder(GptqFactor factor, DescentMoment moment, RoundPath path, int sweeps)
      : path_(path), sweeps_(sweeps), factor_(std::move(factor)), moment_(std::move(moment)) {}

  RoundStatistics round(const TensorView& weights, int exponent, std::span<uint8_t> codes,
                        std::span<uint8_t> scales) const override;

 private:
  int64_t cols() const { return factor_.cols; }

  RoundPath path_;
  int sweeps_;
  GptqFactor factor_;
  DescentMoment moment_;
};

RoundStatistics GptqRounder::round(const TensorView& weights, int exponent,
                                   std::span<uint8_t> codes, std::span<uint8_t> scales) const {
  CHECK(weights.shape[1] == cols(), "columns ", weights.shape[1], " of ", cols());
  const int64_t rows = weights.shape[0];
  const float unit = std::ldexp(1.0F, -exponent);
  std::vector<float> original(static_cast<size_t>(detail::kFeedbackRows * cols()));
  std::vector<float> u(original.size()), gradient(original.size());
  RoundStatistics total;
  for (int64_t n = 0; n < rows; n += detail::kFeedbackRows) {
    const int count = static_cast<int>(std::min<int64_t>(detail::kFeedbackRows, rows - n));
    for (int r = 0; r < count; ++r)
      factor_.load_row(weights, n + r, unit, original.data() + r * cols());
    u = original;
    const Tile tile = {.rows = count,
                       .original = original.data(),
                       .u = u.data(),
                       .gradient = gradient.data(),
                       .factor = factor_,
                       .moment = moment_,
                       .codes = codes.data() + n * (cols() / 2),
                       .scales = scales.data() + n * (cols() / 16)};
    detail::run_on(path_, TileJob{tile, sweeps_, total});
  }
  total.scale_by(std::ldexp(1.0, 2 * exponent));
  return total;
}

}  // namespace

std::unique_ptr<RowRounder> make_gptq_rounder(const InputStatistics& statistics, RoundPath path,
                                              int sweeps) {
  std::optional<GptqFactor> factor = make_gptq_factor(statistics);
  if (!factor) return nullptr;
  DescentMoment moment = make_descent_moment(*factor, statistics);
  return std::make_unique<GptqRounder>(std::move(*factor), std::move(moment), path, sweeps);
}

}  // namespace nibble
