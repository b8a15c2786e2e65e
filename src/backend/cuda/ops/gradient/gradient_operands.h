// Both operands of gradient_product.h: rows in two parts, and transposed matrices.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/ops/gradient/gradient_product.h"

namespace nibble::cuda {

/// Columns of rows or of a transposed matrix with the zeros that fill up a step of the products.
constexpr int32_t step_columns(int64_t cols) {
  return static_cast<int32_t>((cols + kStepColumns - 1) / kStepColumns * kStepColumns);
}

/// to [rows, 2 * padded] = x [rows, cols] in parts, as SplitRows has them.
struct RowsToSplit {
  const float* x = nullptr;
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t padded = 0;  // at least cols, a multiple of kStepColumns
};
cudaError_t split_rows(const RowsToSplit& rows, uint16_t* to, cudaStream_t stream);

/// The transpose of a BF16 matrix [N, cols] or of each of a stack: [cols, step_columns(N)].
struct MatrixToTranspose {
  DeviceLinear weight;
  int32_t cols = 0;   // without the padding of weight.cols
  int32_t stack = 1;  // matrices
};
constexpr int64_t transposed_bytes(int64_t rows, int64_t cols, int64_t stack) {
  return 2 * stack * cols * step_columns(rows);
}
/// Writes it to `to` of transposed_bytes(), a multiple of 16 bytes, and returns it.
DeviceLinear transpose_matrices(const MatrixToTranspose& matrix, uint8_t* to, cudaStream_t stream);

}  // namespace nibble::cuda
