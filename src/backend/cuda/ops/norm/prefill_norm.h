// The seam between two blocks of a prompt: h += what a block returned, x = norm(h) in the column
// order that prompt GEMMs read. Residual stream F32; a row's arithmetic depends on the row alone.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/ops/linear/prefill_order.h"

namespace nibble::cuda {

/// sum over s of weight[t, s] y[position[t, s]], in the order of s; then the shared expert's
/// sigmoid(shared_gate[t]) shared[t].
struct ExpertSum {
  const __nv_bfloat16* y = nullptr;   // [A, hidden], sorted by expert; null: no experts
  const int32_t* position = nullptr;  // [T, top_k] (route_sort)
  const float* weight = nullptr;      // [T, top_k]
  int32_t top_k = 0;
  const __nv_bfloat16* shared = nullptr;  // [T, hidden], or null
  const float* shared_gate = nullptr;     // [T] logits at stride; null: 1
  int64_t shared_gate_stride = 1;
};

struct PrefillAddNorm {
  int32_t rows = 0;
  int32_t hidden = 0;                // a multiple of 8, at most 16,384
  const __nv_bfloat16* y = nullptr;  // [T, hidden] contiguous, or null
  ExpertSum experts;
  float* h = nullptr;             // [T, hidden] contiguous, read and written
  const float* weight = nullptr;  // [hidden]: what the unit row is multiplied by; null: no norm
  float eps = 0.0F;
  __nv_bfloat16* x = nullptr;  // [T, x_stride]; columns past hidden are left alone
  int64_t x_stride = 0;
  ColumnOrder order = ColumnOrder::packed;
};
cudaError_t prefill_add_norm(const PrefillAddNorm& args, cudaStream_t stream);

/// x [T, columns] plain -> packed, columns a multiple of 64, in place or not.
struct PackColumns {
  const __nv_bfloat16* from = nullptr;
  int64_t from_stride = 0;
  __nv_bfloat16* to = nullptr;
  int64_t to_stride = 0;
  int32_t rows = 0;
  int32_t columns = 0;
};
cudaError_t pack_columns(const PackColumns& args, cudaStream_t stream);

}  // namespace nibble::cuda
