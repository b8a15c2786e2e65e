// Numbers of a row of the embedding table, in any format of a matrix, or of encoded media.
#pragma once

#include "backend/cuda/batch_view.h"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/weights/code_words.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

__device__ __forceinline__ float e4m3_value(uint32_t code) {
  const float value = __uint_as_float((code & 0x7FU) << 20) * 0x1p120F;
  return code & 0x80U ? -value : value;
}

__device__ __forceinline__ float e2m1_value(uint32_t code) {
  const float value = __uint_as_float((code & 7U) << 22) * 0x1p126F;
  return code & 8U ? -value : value;
}

/// Returns number `column` of row `row`.
__device__ __forceinline__ float embedding_number(const DeviceLinear& w, int64_t row, int column) {
  const uint8_t* values = w.values + row * value_bytes(w.format, w.cols);
  if (w.format == Format::bf16) return from_bf16(reinterpret_cast<const uint16_t*>(values)[column]);
  if (w.format == Format::nvfp4) {
    const uint32_t code = e2m1_code(reinterpret_cast<const uint32_t*>(values), column);
    const float scale = e4m3_value(w.scales[row * (w.cols / 16) + column / 16]);
    return e2m1_value(code) * scale * w.factors[0];
  }
  const float value = e4m3_value(e4m3_code(reinterpret_cast<const uint32_t*>(values), column));
  if (w.layout == FactorLayout::scalar) return value * w.factors[0];
  if (w.layout == FactorLayout::row) return value * w.factors[row];
  return value * w.factors[row / 128 * (w.cols / 128) + column / 128];
}

/// Returns number `column` of what a token of a batch stands for: a row of the table, or of media.
__device__ __forceinline__ float input_number(const DeviceLinear& table, const BatchView& batch,
                                              int64_t token, int column, int hidden) {
  if (token >= 0) return embedding_number(table, token, column);
  return batch.media == nullptr ? 0.0F : batch.media[(-1 - token) * hidden + column];
}

}  // namespace nibble::cuda
