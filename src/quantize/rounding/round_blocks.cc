// The activation-weighted search, block form ("local Hessian"): per block of 16 the scale code with
// the least e^T H e, where H is the input's 16x16 second moment over the mean square of all
// columns, damped, and every weight goes to the nearest code. Over 32 codes, from 3 octaves below
// amax/3.5 up; sums in F32, columns in order; the lowest code if several tie.
#include "base/check.h"
#include "quantize/rounding/row_rounders.h"
#include "quantize/rounding/weighted_block.inl.h"

namespace nibble {
namespace {

/// Signed error of one weight under W codes. By division: at a tie between two elements both are
/// equally far, but on which side the error lies matters here, and must be what is written.
template <int W>
NIBBLE_INLINE void signed_errors(float exact, float u, const detail::Floats<W>& scale,
                                 detail::Floats<W>& error) {
  using detail::Floats, detail::Ints;
  const Floats<W> magnitude = Floats<W>{} + exact;
  Floats<W> x = magnitude / scale;
  detail::saturate<W>(x);
  Ints<W> offset;
  detail::rounding_offset<W>(x, offset);
  const Floats<W> q = (x + (Floats<W>)offset) - (Floats<W>)offset;
  const auto sign = static_cast<int32_t>(std::bit_cast<uint32_t>(u) & 0x80000000U);
  error = (Floats<W>)((Ints<W>)(magnitude - q * scale) ^ sign);
}

/// e^T H e under 16 codes from `lo` on: sum over i of e_i (H_ii e_i + 2 sum over j > i of H_ij
/// e_j).
template <int W>
NIBBLE_INLINE void block_errors(const detail::SearchBlock& block, const float* u, const float* h,
                                int lo, float* out) {
  using detail::Floats;
  for (int lane = 0; lane < 16; lane += W) {
    Floats<W> scale, reciprocal, e[16], errors = {};
    detail::load_scales<W>(lo + lane, scale, reciprocal);
    for (int i = 0; i < 16; ++i) signed_errors<W>(block.exact[i], u[i], scale, e[i]);
    for (int i = 0; i < 16; ++i) {
      Floats<W> sum = {};
      for (int j = i + 1; j < 16; ++j) sum += e[j] * h[i * 16 + j];
      errors += e[i] * (e[i] * h[i * 16 + i] + (sum + sum));
    }
    std::memcpy(out + lane, &errors, sizeof errors);
  }
}

template <int W>
NIBBLE_INLINE int block_code(const detail::SearchBlock& block, const float* u, const float* h) {
  alignas(64) float errors[32];
  const int lo = block.lo - 16 < 1 ? 1 : block.lo - 16;
  block_errors<W>(block, u, h, lo, errors);
  block_errors<W>(block, u, h, lo + 16, errors + 16);
  int best = 0;
  const int last = block.lo + 15 - lo;
  for (int i = 1; i <= last; ++i) best = errors[i] < errors[best] ? i : best;
  return lo + best;
}

struct BlocksRow {
  detail::Row row;
  const float* moments;  // [K/16, 16, 16]
  RoundStatistics& statistics;

  template <int W>
  NIBBLE_INLINE void run() const {
    detail::round_searched_row<W>(
        row, statistics,
        [&](const detail::SearchBlock& block, int64_t b) __attribute__((always_inline)) {
          return block_code<W>(block, row.u + b * 16, moments + b * 256);
        });
  }
};

class BlockRounder final : public RowRounder {
 public:
  BlockRounder(const InputStatistics& statistics, RoundPath path)
      : cols_(statistics.cols), path_(path) {
    const double unit = mean_square(statistics) * static_cast<double>(statistics.tokens);
    moments_.reserve(static_cast<size_t>(cols_ * 16));
    for (int64_t i = 0; i < cols_; ++i)
      for (int64_t j = i / 16 * 16; j < i / 16 * 16 + 16; ++j)
        moments_.push_back(
            static_cast<float>(statistics.product(i, j) / unit + (i == j ? kDamping : 0.0)));
  }

  RoundStatistics round(const TensorView& weights, int exponent, std::span<uint8_t> codes,
                        std::span<uint8_t> scales) const override {
    CHECK(weights.shape[1] == cols_, "columns ", weights.shape[1], " of ", cols_);
    return detail::round_rows(weights, exponent, codes, scales,
                              [&](const detail::Row& row, RoundStatistics& statistics) {
                                detail::run_on(path_, BlocksRow{row, moments_.data(), statistics});
                              });
  }

 private:
  int64_t cols_;
  RoundPath path_;
  std::vector<float> moments_;
};

}  // namespace

std::unique_ptr<RowRounder> make_block_rounder(const InputStatistics& statistics, RoundPath path) {
  return std::make_unique<BlockRounder>(statistics, path);
}

}  // namespace nibble
