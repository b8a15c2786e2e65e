// Products of F32 rows with BF16 matrices, in F32, for the gradients of a layer:
//   out [R, N] (+)= x W^T, x [R, K], W [N, K]
// Forward W is the matrix of the file, backward its transpose (gradient_operands.h). A row is the
// sum of two BF16 numbers, 16 bits of each number; sums are F32, in one order that does not depend
// on the cut of the rows. Oracle: gradient::DenseLinear.
#pragma once

#include <cstdint>

#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

/// Rows [high | low] of 2 * cols BF16 numbers in packed order (prefill_order.h), zero beyond the
/// columns of x; cols is a multiple of kStepColumns.
struct SplitRows {
  const uint16_t* values = nullptr;
  int32_t cols = 0;
};

enum class ProductResult : uint8_t { stored, added };

struct GradientProduct {
  SplitRows x;                      // of as many columns as the matrix
  const int32_t* gather = nullptr;  // row of x for each row; null: the row itself
  DeviceLinear weight;              // BF16, one matrix or a stack
  float* out = nullptr;             // rows of N numbers without gaps
  ProductResult result = ProductResult::stored;
  int32_t rows = 0;
  const ExpertTile* tiles = nullptr;  // device memory; null: all rows, with one matrix
  const int32_t* tile_count = nullptr;
};

/// Raises the kernels' limits of shared memory. Once per device, before the first product.
void gradient_product_prepare(const Launcher& launcher);
void gradient_product(const GradientProduct& product, const Launcher& launcher);

}  // namespace nibble::cuda
