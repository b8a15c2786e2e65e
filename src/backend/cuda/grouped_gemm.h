// Routing of prompt tokens to experts, and the sum of what the experts return. The products between
// are prefill_gemm calls with tiles. Deterministic: ties go to the lower expert, assignments are
// sorted stably, a token's experts are summed in the order of its choice; no float atomics.
//
//   route_top_k -> route_sort -> prefill_gemm(swiglu, gather) -> prefill_gemm(bf16) -> combine
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/prefill_gemm.h"

namespace nibble::cuda {

inline constexpr int kExpertsMax = 1024;
inline constexpr int kTopKMax = 32;

struct RouteTopK {
  const float* logits = nullptr;  // [T, stride]
  int64_t logits_stride = 0;
  int32_t rows = 0;
  int32_t experts = 0;  // <= kExpertsMax
  int32_t top_k = 0;    // <= kTopKMax, <= experts
  enum class Weights : uint8_t { softmax, renormalized } weights = Weights::renormalized;
  int32_t* chosen = nullptr;       // [T, top_k], best first
  float* chosen_weight = nullptr;  // [T, top_k]
};
cudaError_t route_top_k(const RouteTopK& route, cudaStream_t stream);

/// Assignment a = t * top_k + s is the s-th choice of token t; A = T * top_k of them.
struct RouteSort {
  const int32_t* chosen = nullptr;  // [A]
  int32_t assignments = 0;
  int32_t experts = 0;
  int32_t top_k = 0;
  int32_t* scratch = nullptr;     // route_scratch_ints(A, E)
  int32_t* token = nullptr;       // [A], sorted by expert: row of x
  int32_t* position = nullptr;    // [A]: where assignment a went
  ExpertTile* tiles = nullptr;    // route_tiles_max(A, E)
  int32_t* tile_count = nullptr;  // [1]
};
int64_t route_scratch_ints(int64_t assignments, int experts);
int64_t route_tiles_max(int64_t assignments, int experts);
cudaError_t route_sort(const RouteSort& sort, cudaStream_t stream);

/// h[t] = bf16(h[t] + sum_s weight[t, s] y[position[t, s]] + sigmoid(shared_gate[t]) shared[t]).
struct ExpertCombine {
  __nv_bfloat16* h = nullptr;        // [T, D], contiguous
  const __nv_bfloat16* y = nullptr;  // [A, D], contiguous
  const int32_t* position = nullptr;
  const float* chosen_weight = nullptr;
  const __nv_bfloat16* shared = nullptr;  // [T, D], or null
  const float* shared_gate = nullptr;     // [T] logits at stride shared_gate_stride
  int64_t shared_gate_stride = 1;
  int32_t rows = 0;
  int32_t hidden = 0;  // D, a multiple of 8
  int32_t top_k = 0;
};
cudaError_t combine_experts(const ExpertCombine& combine, cudaStream_t stream);

}  // namespace nibble::cuda
