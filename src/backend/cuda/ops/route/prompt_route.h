// The routing of prompt rows to experts: softmax over the logits of a row, its top_k experts, ties
// to the lower one, and the assignments sorted stably by expert, in tiles of 128.
//   chosen_weight = exp(l - max) / sum of all exp, renormalized over the top_k if asked
//   token, position = the stable order of the assignments by expert
// The products are prefill_gemm calls with these tiles; combine_norm (norm.h) adds what the experts
// return.
//
//   route_top_k -> route_sort -> prefill_gemm(swiglu, gather) -> prefill_gemm(bf16) -> combine_norm
//
//   Oracle: a stable sort and products in double (checks/prefill_gemm_check.cu). Bytes moved:
//   the logits once, the assignments three times; bound by latency. Workspace: `scratch` of
//   route_sort. Any number of rows; a row's choice and weights do not depend on the others. Outputs
//   may not overlap inputs or each other.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "backend/cuda/ops/route/route.h"

namespace nibble::cuda {

struct RouteTopK {
  const float* logits = nullptr;  // [T, stride]
  int64_t logits_stride = 0;
  int32_t rows = 0;
  int32_t experts = 0;  // at most kRouteExpertsMax
  int32_t top_k = 0;    // at most kRouteTopKMax and `experts`
  enum class Weights : uint8_t { softmax, renormalized } weights = Weights::renormalized;
  int32_t* chosen = nullptr;       // [T, top_k], best first
  float* chosen_weight = nullptr;  // [T, top_k]
};
void route_top_k(const RouteTopK& route, const Launcher& launcher);

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
inline constexpr int kRouteSortAssignments = 1024;  // assignments of one thread block
constexpr int64_t route_scratch_ints(int64_t assignments, int64_t experts) {
  return (assignments + kRouteSortAssignments - 1) / kRouteSortAssignments * experts;
}
constexpr int64_t route_tiles_max(int64_t assignments, int64_t experts) {
  return assignments / kTileTokens + std::min(experts, assignments);
}
void route_sort(const RouteSort& sort, const Launcher& launcher);

}  // namespace nibble::cuda
