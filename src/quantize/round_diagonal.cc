// The activation-weighted search, diagonal form: of all 126 scale codes the one with the least
// sum of weight_i e_i^2, where weight_i is the input's mean square in that column over the mean of
// all columns, damped. Sums in F32 and column order; the lowest code if several tie.
#include <cmath>

#include "base/check.h"
#include "quantize/row_rounders.h"
#include "quantize/weighted_block.inl.h"

namespace nibble {
namespace {

struct Row {
  const float* u;        // weights over 2^exponent
  const float* weights;  // of the columns
  int64_t cols;
  uint8_t* codes;
  uint8_t* scales;
};

template <int W>
NIBBLE_INLINE void round_row(const Row& row, RoundStatistics& statistics) {
  for (int64_t b = 0; b < row.cols / 16; ++b) {
    const float* u = row.u + b * 16;
    const detail::SearchBlock block = detail::search_block<W>(u);
    const int code = detail::diagonal_code<W>(block, row.weights + b * 16);
    const uint64_t packed = detail::encode_block<W>(u, block, code, statistics);
    std::memcpy(row.codes + b * 8, &packed, 8);
    row.scales[b] = block.amax == 0.0F ? kZeroBlockScale : static_cast<uint8_t>(code);
    detail::add_errors<W>(block, code, statistics);
  }
}

void row_portable(const Row& row, RoundStatistics& statistics) { round_row<4>(row, statistics); }
#if defined(__x86_64__)
__attribute__((target("avx2"))) void row_avx2(const Row& row, RoundStatistics& statistics) {
  round_row<8>(row, statistics);
}
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"))) void
row_avx512(const Row& row, RoundStatistics& statistics) {
  round_row<16>(row, statistics);
}
#endif

auto row_function([[maybe_unused]] RoundPath path) {
#if defined(__x86_64__)
  if (path == RoundPath::avx512) return row_avx512;
  if (path == RoundPath::avx2) return row_avx2;
#endif
  return row_portable;
}

class DiagonalRounder final : public RowRounder {
 public:
  DiagonalRounder(std::vector<float> weights, RoundPath path)
      : weights_(std::move(weights)), path_(path) {}

  RoundStatistics round(const TensorView& weights, int exponent, std::span<uint8_t> codes,
                        std::span<uint8_t> scales) const override {
    const auto cols = static_cast<int64_t>(weights_.size());
    CHECK(weights.shape[1] == cols, "columns ", weights.shape[1], " of ", cols);
    std::vector<float> u(weights_.size());
    RoundStatistics total;
    for (int64_t n = 0; n < weights.shape[0]; ++n) {
      detail::load_row(weights, n, std::ldexp(1.0F, -exponent), u);
      row_function(path_)({.u = u.data(),
                           .weights = weights_.data(),
                           .cols = cols,
                           .codes = codes.data() + n * (cols / 2),
                           .scales = scales.data() + n * (cols / 16)},
                          total);
    }
    total.scale_by(std::ldexp(1.0, 2 * exponent));
    return total;
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
