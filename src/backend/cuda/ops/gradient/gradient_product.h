// Products of F32 rows with BF16 matrices, in F32, for the gradients of a layer: forward with the
// transposed matrix and backward with the matrix itself.
//   forward:  out [R, N] = x W^T, x [R, K];   backward: out [R, K] (+)= x W, x [R, N];   W [N, K]
// Any rows and sizes. Each sum goes over its terms in order with fused multiply-adds, so the
// result does not depend on the cut of the rows. Oracle: gradient::DenseLinear.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/ops/gradient/product_tile.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

enum class ProductResult : uint8_t { stored, added };

struct GradientProduct {
  const float* x = nullptr;         // rows without gaps
  const int32_t* gather = nullptr;  // row of x for each row; null: the row itself
  DeviceLinear weight;              // BF16, one matrix or a stack
  int32_t cols = 0;                 // K, the matrix's columns without its padding
  float* out = nullptr;             // rows without gaps
  int32_t rows = 0;
  const ProductTile* tiles = nullptr;  // device memory; null: all rows, with one matrix
  int32_t tile_count = 0;
};

cudaError_t gradient_forward(const GradientProduct& product, cudaStream_t stream);
cudaError_t gradient_backward(const GradientProduct& product, ProductResult result,
                              cudaStream_t stream);

}  // namespace nibble::cuda
