// The activation-weighted search, diagonal form: of all 126 scale codes the one with the least
// sum of weight_i e_i^2, where weight_i is the input's mean square in that column over the mean of
// all columns, damped. Sums in F32 and column order; the lowest code if several tie.
#include "base/check.h"
#include "quantize/rounding/row_rounders.h"
#include "quantize/rounding/weighted_block.inl.h"

namespace nibble {
namespace {

struct DiagonalRow {
  detail::Row row;
  const float* weights;  // of the columns
  RoundStatistics& statistics;

  template <int W>
  NIBBLE_INLINE void run() const {
    detail::round_searched_row<W>(
        row, statistics,
        [&](const detail::SearchBlock& block, int64_t b) __attribute__((always_inline)) {
          return detail::diagonal_code<W>(block, weights + b * 16);
        });
  }
};

class DiagonalRounder final : public RowRounder {
 public:
  DiagonalRounder(std::vector<float> weights, RoundPath path)
      : weights_(std::move(weights)), path_(path) {}

  RoundStatistics round(const TensorView& weights, int exponent, std::span<uint8_t> codes,
                        std::span<uint8_t> scales) const override {
    const auto cols = static_cast<int64_t>(weights_.size());
    CHECK(weights.shape[1] == cols, "columns ", weights.shape[1], " of ", cols);
    return detail::round_rows(
        weights, exponent, codes, scales, [&](const detail::Row& row, RoundStatistics& statistics) {
          detail::run_on(path_, DiagonalRow{row, weights_.data(), statistics});
        });
  }

 private:
  std::vector<float> weights_;
  RoundPath path_;
};

}  // namespace

std::unique_ptr<RowRounder> make_diagonal_rounder(const InputStatistics& statistics,
                                                  RoundPath path) {
  return std::make_unique<DiagonalRounder>(column_weights(statistics), path);
}

}  // namespace nibble
