// The conditions under which each kernel that chooses experts runs.
#include "backend/cuda/ops/route/route_select.h"

#include <algorithm>

#include "base/check.h"
#include "base/concat.h"

namespace nibble::cuda {
namespace {

constexpr int32_t kClusterBlocks = 8;

}  // namespace

RoutePlan select_route(const RouteArgs& args, const Architecture& card) {
  CHECK(
      args.rows <= kRouteRowsMax && args.experts <= kRouteExpertsMax && args.top_k <= kRouteTopKMax,
      args.rows, " rows, ", args.top_k, " of ", args.experts, " experts");
  RoutePlan plan{.lane_experts = args.experts <= 256 ? 8 : kRouteExpertsMax / 32,
                 .shared_bytes = args.rows * args.top_k * static_cast<int32_t>(sizeof(uint32_t))};
  if (!card.overlaps()) return plan;
  plan.kernel = RoutePlan::Kernel::cluster;
  plan.cluster = std::min(args.rows, kClusterBlocks);
  return plan;
}

RoutePlan select_route(const RouteTopK& route) {
  CHECK(route.experts <= kRouteExpertsMax && route.top_k <= kRouteTopKMax, route.top_k, " of ",
        route.experts, " experts");
  return {.kernel = RoutePlan::Kernel::prompt,
          .lane_experts = route.experts <= 32    ? 1
                          : route.experts <= 256 ? 8
                                                 : kRouteExpertsMax / 32};
}

std::string RoutePlan::text() const {
  if (kernel == Kernel::prompt)
    return concat("a warp a row, ", lane_experts, " experts a lane; sort");
  return concat(kernel == Kernel::cluster ? concat("a cluster of ", cluster) : "one block", ", ",
                lane_experts, " experts a lane, ", shared_bytes, " bytes shared");
}

}  // namespace nibble::cuda
