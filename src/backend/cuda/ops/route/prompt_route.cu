// Routing and sorting. Bound: latency; the logits of T = 8192 and E = 256 are 8 MB.
#include "backend/cuda/ops/linear/linear_shapes.h"
#include "backend/cuda/ops/route/choose.cuh"
#include "backend/cuda/ops/route/route_select.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/launch_log.h"
#include "backend/cuda/runtime/with_value.h"

namespace nibble::cuda {
namespace {

constexpr int kSortThreads = kRouteSortAssignments;
constexpr int kSortWarps = kSortThreads / 32;
constexpr int kPlaceThreads = kRouteExpertsMax;
constexpr int kChooseWarps = 4;

/// Each warp has a row. In prompt arithmetic the total over all experts adds each lane's own first,
/// then the lanes in order.
template <int kPerLane>
__global__ void __launch_bounds__(kChooseWarps * 32) top_k_kernel(RouteTopK route) {
  __shared__ int chosen[kChooseWarps][kRouteTopKMax];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = static_cast<int>(blockIdx.x) * kChooseWarps + warp;
  if (row >= route.rows) return;
  const float* logits = route.logits + row * route.logits_stride;
  const ChosenKeys keys =
      choose_by_warp<kPerLane>(logits, route.experts, route.top_k, chosen[warp]);
  __syncwarp();
  const float highest = unordered(keys.first);
  float total = 0.0F;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i)
    if (lane + 32 * i < route.experts) total += expf(logits[lane + 32 * i] - highest);
  total = warp_sum(total);
  float weight = lane < route.top_k ? expf(unordered(keys.own) - highest) / total : 0.0F;
  const float sum = warp_sum(weight);
  if (route.weights == RouteTopK::Weights::renormalized) weight /= sum;
  if (lane >= route.top_k) return;
  route.chosen[int64_t{row} * route.top_k + lane] = chosen[warp][lane];
  route.chosen_weight[int64_t{row} * route.top_k + lane] = weight;
}

// ---- stable counting sort ----

/// counts [32 warps, E] of this block's assignments; returns the rank within the warp.
__device__ int count_block(const RouteSort& sort, int* counts, int expert) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = static_cast<int>(threadIdx.x); i < kSortWarps * sort.experts; i += kSortThreads)
    counts[i] = 0;
  __syncthreads();
  const unsigned same = __match_any_sync(kAllLanes, expert);
  const int rank = __popc(same & ((1U << lane) - 1));
  if (expert >= 0 && rank == 0) counts[warp * sort.experts + expert] = __popc(same);
  __syncthreads();
  return rank;
}

__device__ int expert_of(const RouteSort& sort) {
  const int a = static_cast<int>(blockIdx.x) * kSortThreads + static_cast<int>(threadIdx.x);
  return a < sort.assignments ? sort.chosen[a] : -1;
}

/// Writes to scratch [blocks, E] the number of assignments of each block to each expert.
__global__ __launch_bounds__(kSortThreads) void count_kernel(RouteSort sort) {
  extern __shared__ int counts[];
  count_block(sort, counts, expert_of(sort));
  for (int e = static_cast<int>(threadIdx.x); e < sort.experts; e += kSortThreads) {
    int sum = 0;
    for (int w = 0; w < kSortWarps; ++w) sum += counts[w * sort.experts + e];
    sort.scratch[static_cast<int>(blockIdx.x) * sort.experts + e] = sum;
  }
}

/// One block, with a thread for each expert, turns scratch into the places where the assignments of
/// each block begin.
__global__ __launch_bounds__(kPlaceThreads) void place_kernel(RouteSort sort, int blocks) {
  __shared__ int2 scratch[kPlaceThreads / 32];
  const int e = static_cast<int>(threadIdx.x);
  int count = 0;
  if (e < sort.experts)
    for (int b = 0; b < blocks; ++b) count += sort.scratch[b * sort.experts + e];
  const int tiles = (count + kTileTokens - 1) / kTileTokens;
  int2 all;
  const int2 before = exclusive_sums<kPlaceThreads / 32>(make_int2(count, tiles), scratch, &all);
  if (e == 0) *sort.tile_count = all.y;
  if (e >= sort.experts) return;
  int begin = before.x;
  for (int i = 0; i < tiles; ++i) {
    const int left = count - i * kTileTokens;
    sort.tiles[before.y + i] = {e, begin + i * kTileTokens,
                                left < kTileTokens ? left : kTileTokens};
  }
  for (int b = 0; b < blocks; ++b) {
    const int here = sort.scratch[b * sort.experts + e];
    sort.scratch[b * sort.experts + e] = begin;
    begin += here;
  }
}

__global__ __launch_bounds__(kSortThreads) void scatter_kernel(RouteSort sort) {
  extern __shared__ int counts[];
  const int expert = expert_of(sort);
  const int rank = count_block(sort, counts, expert);
  for (int e = static_cast<int>(threadIdx.x); e < sort.experts; e += kSortThreads) {
    int begin = sort.scratch[static_cast<int>(blockIdx.x) * sort.experts + e];
    for (int w = 0; w < kSortWarps; ++w) {
      const int here = counts[w * sort.experts + e];
      counts[w * sort.experts + e] = begin;
      begin += here;
    }
  }
  __syncthreads();
  if (expert < 0) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int a = static_cast<int>(blockIdx.x) * kSortThreads + static_cast<int>(threadIdx.x);
  const int at = counts[warp * sort.experts + expert] + rank;
  sort.token[at] = a / sort.top_k;
  sort.position[a] = at;
}

}  // namespace

void route_top_k(const RouteTopK& route, const Launcher& launcher) {
  const RoutePlan plan = select_route(route);
  log_launch(launcher, plan, {});
  if (route.rows == 0) return;
  const auto kernel = with_value<1, 8, kRouteExpertsMax / 32>(
      plan.lane_experts, [&]<int kPerLane>() { return top_k_kernel<kPerLane>; });
  launch(kernel, launcher.in_order(), static_cast<unsigned>(ceil_div(route.rows, kChooseWarps)),
         kChooseWarps * 32, 0, route);
}

void route_sort(const RouteSort& sort, const Launcher& launcher) {
  const Launcher in_order = launcher.in_order();
  const int blocks = ceil_div(sort.assignments, kSortThreads);
  const int shared = kSortWarps * sort.experts * static_cast<int>(sizeof(int));
  for (const auto kernel : {count_kernel, scatter_kernel})
    launcher.device->allow_shared(kernel, shared);
  const auto grid = static_cast<unsigned>(blocks);
  if (blocks > 0)
    launch(count_kernel, in_order, grid, kSortThreads, static_cast<size_t>(shared), sort);
  launch(place_kernel, in_order, 1, kPlaceThreads, 0, sort, blocks);
  if (blocks > 0)
    launch(scatter_kernel, in_order, grid, kSortThreads, static_cast<size_t>(shared), sort);
}

}  // namespace nibble::cuda
