// One kernel goes from router logits to the rows of each expert. A warp chooses the experts of a
// row (choose.cuh); the first block lists the experts that have rows and their assignments, in no
// fixed order, because what an expert returns for a row does not depend on other rows. Where
// clusters exist (compute capability 9.0), the blocks of one share the rows; else one block has
// all.
#include "backend/cuda/ops/route/choose.cuh"
#include "backend/cuda/ops/route/route_select.h"
#include "backend/cuda/ptx/cluster.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/launch_log.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kItemRows = 8;  // rows of one item
static_assert(kThreads >= kRouteExpertsMax);

/// One warp chooses the experts of a row and tells the first block in choices[rank]: the expert, or
/// kNoExpert for a row of padding.
constexpr uint32_t kNoExpert = UINT32_MAX;
template <int kPerLane>
__device__ __forceinline__ void choose_row(const RouteArgs& a, int row, bool real, int* chosen,
                                           uint32_t* choices) {
  const int lane = threadIdx.x % 32;
  const float* logits = a.logits + row * a.stride;
  const ChosenKeys keys = choose_by_warp<kPerLane>(logits, a.experts, a.top_k, chosen);
  __syncwarp();
  const int expert = lane < a.top_k ? chosen[lane] : 0;
  __syncwarp();  // the next row overwrites them
  if (lane < a.top_k)
    store_in_cluster(&choices[lane], 0, real ? static_cast<uint32_t>(expert) : kNoExpert);
  const float weight = weigh_by_warp(logits, a.experts, a.top_k, a.renormalize, keys);
  if (lane >= a.top_k) return;
  a.routing.weights[row * a.top_k + lane] = weight;
  a.routing.experts[row * a.top_k + lane] = expert;
}

/// Lists the rows of each expert; one block does it. `counts` begins as zeros; a thread has one
/// expert and every kThreads-th choice.
__device__ __forceinline__ void group_choices(const RouteArgs& a, uint32_t* choices, int* counts,
                                              int2* scratch) {
  constexpr int kPlaceShift = 16;  // expert below, its place among those of that expert above
  constexpr uint32_t kExpertBits = (1U << kPlaceShift) - 1;
  const Routing& to = a.routing;
  for (int i = threadIdx.x; i < a.rows * a.top_k; i += kThreads)
    if (choices[i] != kNoExpert)
      choices[i] |= static_cast<uint32_t>(atomicAdd(&counts[choices[i]], 1)) << kPlaceShift;
  __syncthreads();
  const int count = counts[threadIdx.x];
  constexpr int kItem = 1 << 16;  // experts with rows below, items above
  const int items = (count + kItemRows - 1) / kItemRows;
  int2 total;
  const int2 place =
      exclusive_sums<kWarps>(make_int2(count, items * kItem + (count > 0)), scratch, &total);
  counts[threadIdx.x] = place.x;
  for (int i = 0; i < items; ++i)
    to.items[place.y / kItem + i] =
        make_int4(threadIdx.x, place.x + i * kItemRows, min(kItemRows, count - i * kItemRows), 0);
  if (count > 0) {
    to.active[place.y % kItem] = threadIdx.x;
    to.begin[place.y % kItem] = place.x;
  }
  if (threadIdx.x == 0) {
    to.begin[total.y % kItem] = total.x;
    *to.active_count = total.y % kItem;
    *to.active_sum += total.y % kItem;
    *to.item_count = total.y / kItem;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < a.rows * a.top_k; i += kThreads)
    if (choices[i] != kNoExpert)
      to.assignments[counts[choices[i] & kExpertBits] + (choices[i] >> kPlaceShift)] = i;
}

/// One cluster; its block b has rows b, b + blocks, ...
template <int kPerLane>
__global__ void __launch_bounds__(kThreads) route_kernel(const __grid_constant__ RouteArgs a) {
  extern __shared__ uint32_t choices[];  // [rows * top_k], of the first block
  __shared__ int counts[kThreads];
  __shared__ int chosen[kWarps][kRouteTopKMax];
  __shared__ int2 scratch[kWarps];
  touch(a);
  const int block = rank_in_cluster();
  const int blocks = blocks_in_cluster();
  const auto warp = static_cast<int>(threadIdx.x) / 32;
  counts[threadIdx.x] = 0;
  arrive_at_cluster();  // all blocks run before one writes to the first
  wait_for_inputs();
  wait_for_cluster();
  for (int row = block + blocks * warp; row < a.rows; row += blocks * kWarps)
    choose_row<kPerLane>(a, row, a.kv_index[row] >= 0, chosen[warp], choices + row * a.top_k);
  __syncwarp();
  arrive_at_cluster();
  if (block > 0) return;
  wait_for_cluster();
  group_choices(a, choices, counts, scratch);
}

}  // namespace

void route(const RouteArgs& args, const Launcher& launcher) {
  const RoutePlan plan = select_route(args, launcher.card);
  log_launch(launcher, plan, {});
  Launcher cluster = launcher;
  cluster.cluster = plan.cluster;
  launch(plan.lane_experts == 8 ? route_kernel<8> : route_kernel<kRouteExpertsMax / 32>, cluster,
         static_cast<unsigned>(plan.cluster), kThreads, static_cast<size_t>(plan.shared_bytes),
         args);
}

}  // namespace nibble::cuda
