// Rows are worked on over a power of two near their largest scale, so that no correction can
// overflow.
#include "quantize/rounding/fp8_gptq.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "quantize/rounding/gptq_feedback.inl.h"
#include "tensor/float_formats.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

/// Up to kFeedbackRows rows, columns in the factor's order.
struct Tile {
  int rows;
  float* u;             // [rows, K]: weights, and then what they are rounded to, over a unit each
  const float* scales;  // [rows, K/16], over the same unit
  const GptqFactor& factor;
  uint8_t* codes;  // [rows, K] as in the file
};

template <int W>
NIBBLE_INLINE void round_tile(const Tile& tile) {
  const int64_t cols = tile.factor.cols;
  const auto& values = e4m3_values();
  detail::feed_back_rows<W>(
      tile.factor.factors.data(), {.rows = tile.rows, .cols = cols, .u = tile.u},
      [&](int r, int64_t b, float* errors) __attribute__((always_inline)) {
        const float scale = tile.scales[r * (cols / 16) + b / 16];
        uint8_t* codes = tile.codes + r * cols + tile.factor.column(b);
        detail::feed_back(
            tile.u + r * cols + b, tile.factor.factors.data() + b * cols + b, cols,
            errors, [&](int j, float u) __attribute__((always_inline)) {
              codes[j] = finite_to_e4m3(u / scale + 0.0F);
              return values[codes[j]] * scale;
            });
      });
}

struct TileJob {
  const Tile& tile;

  template <int W>
  NIBBLE_INLINE void run() const {
    round_tile<W>(tile);
  }
};

}  // namespace

float Fp8Scales::at(int64_t row, int64_t col) const {
  return values[static_cast<size_t>(row * per_row + row / kFp8Block * per_band +
                                    col / kFp8Block * per_tile)];
}

Fp8Scales Fp8Scales::from_row(int64_t row) const {
  Fp8Scales rest = *this;
  rest.values = values.subspan(static_cast<size_t>(row * per_row + row / kFp8Block * per_band));
  return rest;
}

/// The reciprocal is finite.
int fp8_row_exponent(const Fp8Scales& scales, int64_t row, int64_t cols) {
  float most = 0;
  for (int64_t k = 0; k < cols; k += kFp8Block) most = std::max(most, scales.at(row, k));
  CHECK(std::isfinite(most) && most > 0, "scale ", most);
  return std::max(std::ilogb(most), -120);
}

/// Where one tile's scale is less than 2^-100 of the row's largest, what is lost does not count.
void fp8_block_scales(const Fp8Scales& scales, int64_t row, int exponent,
                      std::span<const int64_t> order, float* out) {
  for (const int64_t block : order)
    *out++ = std::max(std::ldexp(scales.at(row, block * 16), -exponent), 0x1p-100F);
}

double fp8_squared_error(const TensorView& weights, int64_t row, const Fp8Scales& scales,
                         const uint8_t* codes) {
  const int64_t cols = weights.shape[1];
  std::vector<float> w(static_cast<size_t>(cols));
  detail::load_row(weights, row, 1.0F, w);
  const auto& values = e4m3_values();
  double total = 0;
  for (int64_t k = 0; k < cols; ++k) {
    const double e = static_cast<double>(w[static_cast<size_t>(k)]) -
                     static_cast<double>(values[codes[k]]) * static_cast<double>(scales.at(row, k));
    total += e * e;
  }
  return total;
}

std::vector<double> sum_by_bands(
    const TensorView& weights, std::span<uint8_t> codes, ThreadPool& threads,
    const std::function<double(const TensorView&, int64_t, std::span<uint8_t>)>& sum_of) {
  const int64_t rows = weights.shape[0], cols = weights.shape[1];
  std::vector<double> sums(static_cast<size_t>((rows + kFp8Block - 1) / kFp8Block));
  threads.parallel_for(sums.size(), 1, [&](size_t begin, size_t end) {
    for (size_t band = begin; band < end; ++band) {
      const int64_t first = static_cast<int64_t>(band) * kFp8Block;
      const int64_t count = std::min(kFp8Block, rows - first);
      sums[band] = sum_of(
          rows_of(weights, first, count), first,
          codes.subspan(static_cast<size_t>(first * cols), static_cast<size_t>(count * cols)));
    }
  });
  return sums;
}

std::vector<double> Fp8Rounder::round_bands(const TensorView& weights, const Fp8Scales& scales,
                                            std::span<uint8_t> codes, ThreadPool& threads) const {
  return sum_by_bands(weights, codes, threads,
                      [&](const TensorView& band, int64_t first, std::span<uint8_t> part) {
                        return round(band, scales.from_row(first), part);
                      });
}

double Fp8GptqRounder::round(const TensorView& weights, const Fp8Scales& scales,
                             std::span<uint8_t> codes) const {
  const int64_t rows = weights.shape[0], cols = weights.shape[1];
  CHECK(cols == factor_.cols && codes.size() == static_cast<size_t>(rows * cols), rows, " x ",
        cols);
  std::vector<float> u(static_cast<size_t>(detail::kFeedbackRows * cols)), over(u.size() / 16);
  double error = 0;
  for (int64_t n = 0; n < rows; n += detail::kFeedbackRows) {
    const int count = static_cast<int>(std::min<int64_t>(detail::kFeedbackRows, rows - n));
    for (int r = 0; r < count; ++r) {
      const int exponent = fp8_row_exponent(scales, n + r, cols);
      factor_.load_row(weights, n + r, std::ldexp(1.0F, -exponent), u.data() + r * cols);
      fp8_block_scales(scales, n + r, exponent, factor_.order, over.data() + r * (cols / 16));
    }
    const Tile tile = {.rows = count,
                       .u = u.data(),
                       .scales = over.data(),
                       .factor = factor_,
                       .codes = codes.data() + n * cols};
    detail::run_on(path_, TileJob{tile});
    for (int r = 0; r < count; ++r)
      error += fp8_squared_error(weights, n + r, scales, codes.data() + (n + r) * cols);
  }
  return error;
}

}  // namespace nibble
