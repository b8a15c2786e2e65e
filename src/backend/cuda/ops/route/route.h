// The choice of top_k experts for each row by its router logits: softmax over all experts, the
// top_k largest, ties to the lower expert, weights renormalized if the model says so; and the lists
// by which experts find their rows.
//   Oracle: a stable sort on the host (route_test.cc). Bytes moved: the logits once.
#pragma once

#include "backend/cuda/runtime/launcher.h"

struct int4;  // of the CUDA runtime: four int32_t, 16-byte aligned

namespace nibble::cuda {

/// The rows of each chosen expert, grouped. `assignments` are row * top_k + rank.
struct Routing {
  int32_t* experts = nullptr;       // [rows][top_k]
  float* weights = nullptr;         // [rows][top_k]
  int32_t* active = nullptr;        // [experts], ids of experts with rows, ascending
  int32_t* begin = nullptr;         // [experts + 1], by place in `active`, into `assignments`
  int32_t* assignments = nullptr;   // [rows * top_k]
  int32_t* active_count = nullptr;  // [1]
  int32_t* active_sum = nullptr;    // [1], over all feed-forwards since reserve()
  int4* items = nullptr;            // [rows * top_k]: 8 or fewer assignments of one expert each:
                                    // (expert, first, count, 0)
  int32_t* item_count = nullptr;    // [1]
  int32_t* announced = nullptr;     // [top_k], of a single row alone: 1 + experts[rank] as soon as
                                    // gate_up knows it, until then 0
};
struct RouteArgs {
  const float* logits = nullptr;  // [rows][stride]
  int64_t stride = 0;
  const int32_t* kv_index = nullptr;  // [rows], -1: padding, takes no expert
  int32_t rows = 0;                   // at most kRouteRowsMax
  int32_t experts = 0;                // at most kRouteExpertsMax
  int32_t top_k = 0;                  // at most kRouteTopKMax
  bool renormalize = true;
  Routing routing;
};
inline constexpr int kRouteExpertsMax = 512;
inline constexpr int kRouteTopKMax = 32;
inline constexpr int kRouteRowsMax = 256;
void route(const RouteArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
