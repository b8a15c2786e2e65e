// One feed-forward in generation arithmetic: stacks of experts on their assignments, and a shared
// or dense matrix on all rows.
//   gate_up: act = bf16(silu(x gate^T) * (x up^T)); down: y = act down^T in F32. Row of act and y:
//   the assignment, or shared_begin + row.
//   Oracle: reference::moe (block_test.cc) and products in double (checks/linear_check.cu).
//   Bytes moved: the matrices of each expert that has rows, once for every 8 of its rows;
//   activations once. Any number of rows; a row has the same bits alone and in any batch. act and y
//   may not overlap x.
#pragma once

#include "backend/cuda/ops/norm/norm.h"
#include "backend/cuda/ops/route/route.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

struct ExpertArgs {
  DeviceLinear routed_low, routed_high;  // gate and up; for down both the same
  DeviceLinear shared_low, shared_high;
  Routing routing;
  int32_t rows = 0;
  int32_t experts = 0;
  int32_t top_k = 0;
  int64_t shared_begin = 0;
  const uint16_t* x = nullptr;  // [rows][x_stride]
  int64_t x_stride = 0;
  uint16_t* act = nullptr;  // [assignments + rows][act_stride]
  int64_t act_stride = 0;
  float* y = nullptr;  // [assignments + rows][y_stride]
  int64_t y_stride = 0;
  // A single row alone: gate_up makes x and the choice itself, down adds the weighted sum to h.
  NormInput norm;                      // h null: x, routing and y are used
  const float* logits = nullptr;       // [experts]
  const float* shared_gate = nullptr;  // [1], logit
  bool renormalize = true;
  float* h = nullptr;
};
enum class ExpertPart : uint8_t { gate_up, down };

void experts_gate_up(const ExpertArgs& args, const Launcher& launcher);
void experts_down(const ExpertArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
