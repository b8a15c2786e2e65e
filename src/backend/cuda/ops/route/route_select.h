// The choice of the kernel that chooses experts: a pure function of the number of experts, the rows
// and the card, so that it can be printed and tested without one.
#pragma once

#include <cstdint>
#include <string>

#include "backend/cuda/ops/route/prompt_route.h"
#include "backend/cuda/ops/route/route.h"
#include "backend/cuda/runtime/architecture.h"

namespace nibble::cuda {

struct RoutePlan {
  /// cluster: the blocks of one cluster share the rows, and the first of them lists the experts.
  /// block: one block does all. prompt: a warp a row, then three kernels that sort the assignments.
  enum class Kernel : uint8_t { cluster, block, prompt } kernel = Kernel::block;
  int32_t lane_experts = 0;  // experts of a lane, compiled: 1, 8 or 16
  int32_t cluster = 1;       // thread blocks
  int32_t shared_bytes = 0;  // dynamic, of a thread block

  bool operator==(const RoutePlan&) const = default;
  std::string text() const;
};
/// CHECKs the limits of route.h.
RoutePlan select_route(const RouteArgs& args, const Architecture& card);
RoutePlan select_route(const RouteTopK& route);

}  // namespace nibble::cuda
