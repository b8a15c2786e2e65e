// Rounds row by row, in doubles only where errors are summed.
#include "quantize/rounding/fp8_round.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensor/float_formats.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

void add_row(const float* x, const uint8_t* codes, float scale, int64_t count,
             RoundStatistics& statistics) {
  const auto& values = e4m3_values();
  double weights = 0, errors = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double w = static_cast<double>(x[i]);
    const double e = w - static_cast<double>(values[codes[i]]) * static_cast<double>(scale);
    weights += w * w;
    errors += e * e;
  }
  statistics.weight_squares += weights;
  statistics.error_squares += errors;
  statistics.amax_error_squares += errors;
}

/// -0 becomes +0, as in compressed-tensors, which adds a zero point.
void round_row(const float* x, float scale, int64_t count, uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) codes[i] = finite_to_e4m3(x[i] / scale + 0.0F);
}

}  // namespace

RoundStatistics round_fp8_channels(const TensorView& weights, std::span<uint8_t> codes,
                                   std::span<float> scales) {
  const int64_t rows = weights.shape[0], cols = weights.shape[1];
  CHECK(scales.size() == static_cast<size_t>(rows), scales.size());
  RoundStatistics statistics;
  for (int64_t i = 0; i < rows; ++i) {
    const TensorView row = {weights.data + dtype_bytes(weights.dtype, i * cols), weights.dtype,
                            Shape{1, cols}};
    const float scale = fp8_scale(largest_magnitude(row.data, row.dtype, cols));
    scales[static_cast<size_t>(i)] = scale;
    statistics += round_fp8_rows(
        row, scale, codes.subspan(static_cast<size_t>(i * cols), static_cast<size_t>(cols)));
  }
  return statistics;
}

RoundStatistics round_fp8_rows(const TensorView& weights, float scale, std::span<uint8_t> codes) {
  CHECK(std::isfinite(scale) && scale > 0, "scale ", scale);
  const int64_t rows = weights.shape[0], cols = weights.shape[1];
  CHECK(codes.size() == static_cast<size_t>(rows * cols), codes.size());
  std::vector<float> row(static_cast<size_t>(cols));
  RoundStatistics statistics;
  for (int64_t i = 0; i < rows; ++i) {
    uint8_t* out = codes.data() + i * cols;
    decode_plain(weights.data + dtype_bytes(weights.dtype, i * cols), weights.dtype, cols,
                 row.data());
    round_row(row.data(), scale, cols, out);
    add_row(row.data(), out, scale, cols, statistics);
  }
  return statistics;
}

RoundStatistics round_fp8_band(const TensorView& weights, std::span<uint8_t> codes,
                               std::span<float> scales) {
  const int64_t rows = weights.shape[0], cols = weights.shape[1];
  const int64_t tiles = (cols + kFp8Block - 1) / kFp8Block;
  CHECK(rows <= kFp8Block && codes.size() == static_cast<size_t>(rows * cols) &&
            scales.size() == static_cast<size_t>(tiles),
        rows, " x ", cols);
  std::vector<float> band(static_cast<size_t>(rows * cols));
  decode_plain(weights.data, weights.dtype, rows * cols, band.data());
  RoundStatistics statistics;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t begin = tile * kFp8Block, width = std::min(kFp8Block, cols - begin);
    float amax = 0;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < width; ++i)
        amax = std::max(amax, std::fabs(band[static_cast<size_t>(row * cols + begin + i)]));
    const float scale = scales[static_cast<size_t>(tile)] = fp8_scale(amax);
    for (int64_t row = 0; row < rows; ++row) {
      const float* x = band.data() + row * cols + begin;
      uint8_t* out = codes.data() + row * cols + begin;
      round_row(x, scale, width, out);
      add_row(x, out, scale, width, statistics);
    }
  }
  return statistics;
}

}  // namespace nibble
