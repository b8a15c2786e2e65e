// Routing and sorting. Bound: latency; the logits of T = 8192 and E = 256 are 8 MB.
#include "backend/cuda/ops/route/grouped_gemm.h"
#include "backend/cuda/runtime/launch.cuh"
namespace nibble::cuda {
namespace {

constexpr int kWarp = 32;
constexpr unsigned kAll = 0xFFFFFFFFU;
constexpr int kSortThreads = kRouteSortAssignments;

// ---- top k: one warp a token ----

/// Logits of a lane: experts lane, lane + 32, ...
template <int kPerLane>
struct LaneLogits {
  float value[kPerLane];
};

struct Best {
  float value;
  int expert;
};

__device__ Best better(Best a, Best b) {
  const bool second = b.value > a.value || (b.value == a.value && b.expert < a.expert);
  return second ? b : a;
}

__device__ Best warp_best(Best best) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const Best other{__shfl_xor_sync(kAll, best.value, offset),
                     __shfl_xor_sync(kAll, best.expert, offset)};
    best = better(best, other);
  }
  return best;
}

__device__ float warp_sum(float x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAll, x, offset);
  return x;
}

/// A NaN logit is never chosen before the others, and makes every weight NaN through the total.
template <int kPerLane>
__device__ float load_logits(const RouteTopK& route, int row, int lane,
                             LaneLogits<kPerLane>& logits, float* highest) {
  const float* from = route.logits + row * route.logits_stride;
  float top = -INFINITY;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = lane + i * kWarp;
    logits.value[i] = e < route.experts ? from[e] : -INFINITY;
    top = fmaxf(top, logits.value[i]);
  }
  top = warp_best({top, lane}).value;
  float total = 0.0F;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (lane + i * kWarp < route.experts) total += expf(logits.value[i] - top);
    if (isnan(logits.value[i])) logits.value[i] = -INFINITY;
  }
  *highest = top;
  return warp_sum(total);
}

template <int kPerLane>
__global__ void top_k_kernel(RouteTopK route) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / kWarp;
  if (row >= route.rows) return;
  LaneLogits<kPerLane> logits;
  float highest;
  const float total = load_logits(route, row, lane, logits, &highest);
  uint32_t taken = 0;
  Best mine{0.0F, 0};  // lane s keeps choice s
  for (int s = 0; s < route.top_k; ++s) {
    Best best{-INFINITY, kExpertsMax};
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = lane + i * kWarp;
      if (e < route.experts && (taken >> i & 1) == 0) best = better(best, {logits.value[i], e});
    }
    best = warp_best(best);
    if (best.expert % kWarp == lane) taken |= 1U << best.expert / kWarp;
    if (lane == s) mine = best;
  }
  float weight = lane < route.top_k ? expf(mine.value - highest) / total : 0.0F;
  const float chosen = warp_sum(weight);
  if (route.weights == RouteTopK::Weights::renormalized) weight /= chosen;
  if (lane >= route.top_k) return;
  route.chosen[int64_t{row} * route.top_k + lane] = mine.expert;
  route.chosen_weight[int64_t{row} * route.top_k + lane] = weight;
}

// ---- stable counting sort ----

/// counts [32 warps, E] of this block's assignments; returns the rank within the warp.
__device__ int count_block(const RouteSort& sort, int* counts, int expert) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int i = static_cast<int>(threadIdx.x); i < kSortThreads / kWarp * sort.experts;
       i += kSortThreads)
    counts[i] = 0;
  __syncthreads();
  const unsigned same = __match_any_sync(kAll, expert);
  const int rank = __popc(same & ((1U << lane) - 1));
  if (expert >= 0 && rank == 0) counts[warp * sort.experts + expert] = __popc(same);
  __syncthreads();
  return rank;
}

__device__ int expert_of(const RouteSort& sort) {
  const int a = static_cast<int>(blockIdx.x) * kSortThreads + static_cast<int>(threadIdx.x);
  return a < sort.assignments ? sort.chosen[a] : -1;
}

/// scratch [blocks, E]: assignments of each block to each expert.
__global__ __launch_bounds__(kSortThreads) void count_kernel(RouteSort sort) {
  extern __shared__ int counts[];
  count_block(sort, counts, expert_of(sort));
  for (int e = static_cast<int>(threadIdx.x); e < sort.experts; e += kSortThreads) {
    int sum = 0;
    for (int w = 0; w < kSortThreads / kWarp; ++w) sum += counts[w * sort.experts + e];
    sort.scratch[static_cast<int>(blockIdx.x) * sort.experts + e] = sum;
  }
}

/// Inclusive sums over the block of (assignments, tiles).
__device__ int2 scan_block(int2 value, int2* partial) {
  const int at = static_cast<int>(threadIdx.x);
  partial[at] = value;
  __syncthreads();
  for (int offset = 1; offset < kExpertsMax; offset *= 2) {
    const int2 other = at >= offset ? partial[at - offset] : make_int2(0, 0);
    __syncthreads();
    partial[at].x += other.x;
    partial[at].y += other.y;
    __syncthreads();
  }
  return partial[at];
}

/// One block, one thread an expert: scratch becomes where each block's assignments begin.
__global__ __launch_bounds__(kExpertsMax) void place_kernel(RouteSort sort, int blocks) {
  __shared__ int2 partial[kExpertsMax];
  const int e = static_cast<int>(threadIdx.x);
  int count = 0;
  if (e < sort.experts)
    for (int b = 0; b < blocks; ++b) count += sort.scratch[b * sort.experts + e];
  const int tiles = (count + kTileTokens - 1) / kTileTokens;
  const int2 end = scan_block(make_int2(count, tiles), partial);
  if (e == kExpertsMax - 1) *sort.tile_count = end.y;
  if (e >= sort.experts) return;
  int begin = end.x - count;
  for (int i = 0; i < tiles; ++i) {
    const int left = count - i * kTileTokens;
    sort.tiles[end.y - tiles + i] = {e, begin + i * kTileTokens,
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
    for (int w = 0; w < kSortThreads / kWarp; ++w) {
      const int here = counts[w * sort.experts + e];
      counts[w * sort.experts + e] = begin;
      begin += here;
    }
  }
  __syncthreads();
  if (expert < 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int a = static_cast<int>(blockIdx.x) * kSortThreads + static_cast<int>(threadIdx.x);
  const int at = counts[warp * sort.experts + expert] + rank;
  sort.token[at] = a / sort.top_k;
  sort.position[a] = at;
}

int sort_blocks(int64_t assignments) {
  return static_cast<int>((assignments + kSortThreads - 1) / kSortThreads);
}

}  // namespace

void route_top_k(const RouteTopK& route, const Launcher& launcher) {
  constexpr int kThreads = 128;
  const auto blocks =
      static_cast<unsigned>((route.rows + kThreads / kWarp - 1) / (kThreads / kWarp));
  if (blocks == 0) return;
  const auto kernel = route.experts <= 32    ? top_k_kernel<1>
                      : route.experts <= 256 ? top_k_kernel<8>
                                             : top_k_kernel<kExpertsMax / kWarp>;
  launch(kernel, launcher.in_order(), blocks, kThreads, 0, route);
}

void route_sort(const RouteSort& sort, const Launcher& launcher) {
  const Launcher in_order = launcher.in_order();
  const int blocks = sort_blocks(sort.assignments);
  const int shared = kSortThreads / kWarp * sort.experts * static_cast<int>(sizeof(int));
  for (const auto kernel : {count_kernel, scatter_kernel}) allow_shared(kernel, shared);
  const auto grid = static_cast<unsigned>(blocks);
  if (blocks > 0)
    launch(count_kernel, in_order, grid, kSortThreads, static_cast<size_t>(shared), sort);
  launch(place_kernel, in_order, 1, kExpertsMax, 0, sort, blocks);
  if (blocks > 0)
    launch(scatter_kernel, in_order, grid, kSortThreads, static_cast<size_t>(shared), sort);
}

}  // namespace nibble::cuda
