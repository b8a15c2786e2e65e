// From router logits to the rows of each expert. choose: one block per row; the rank of an expert
// is the number of experts with a larger logit (ties: lower id first), the top_k ranks are chosen,
// weighted by softmax. group: one block lists the experts that have rows and their assignments (in
// no fixed order: what an expert returns for a row does not depend on its neighbours).
#include "backend/cuda/choose.cuh"
#include "backend/cuda/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kItemRows = 8;  // of one item
static_assert(kThreads >= kRouteExpertsMax);

/// Experts of [begin, begin + count) before `expert` in the order of choice; count a multiple of 4.
__device__ __forceinline__ int rank_among(const uint32_t* keys, int expert, int begin, int count) {
  const uint32_t own = keys[expert];
  int rank = 0;
#pragma unroll 4
  for (int j = begin; j < begin + count; j += 4) {
    const uint4 k = *reinterpret_cast<const uint4*>(keys + j);
    rank += k.x > own || (k.x == own && j < expert);
    rank += k.y > own || (k.y == own && j + 1 < expert);
    rank += k.z > own || (k.z == own && j + 2 < expert);
    rank += k.w > own || (k.w == own && j + 3 < expert);
  }
  return rank;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}
/// Of a block of up to 32 warps. `scratch`: a float for each.
__device__ __forceinline__ float block_max(float x, float* scratch) {
  x = warp_max(x);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  const bool has = threadIdx.x % 32 < blockDim.x / 32;
  return warp_max(has ? scratch[threadIdx.x % 32] : -INFINITY);
}

constexpr int kChooseThreads = 1024;

/// One block per row. Each expert has a thread, and as many as fit share the comparing.
__global__ void __launch_bounds__(kChooseThreads)
    choose_kernel(const __grid_constant__ RouteArgs a) {
  __shared__ __align__(16) uint32_t keys[kThreads];
  __shared__ int ranks[kThreads];
  __shared__ float maxima[kChooseThreads / 32];
  __shared__ float chosen_exp[kRouteTopKMax];
  __shared__ float sums[kChooseThreads / 32];
  touch(a);
  wait_for_inputs();
  const int row = blockIdx.x;
  const int padded = (a.experts + 31) / 32 * 32;
  const int expert = threadIdx.x % padded;
  const bool first = threadIdx.x < padded;
  const bool present = first && expert < a.experts;
  const float logit = present ? a.logits[row * a.stride + expert] : -INFINITY;
  if (first) {
    keys[expert] = present ? ordered(logit) : 0U;
    ranks[expert] = 0;
  }
  const float highest = block_max(logit, maxima);  // and a barrier for keys
  const float weight = present ? expf(logit - highest) : 0.0F;
  const float warp_total = warp_sum(weight);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = warp_total;
  const int shares = blockDim.x / padded;
  const int count = padded / shares;
  atomicAdd(&ranks[expert], rank_among(keys, expert, threadIdx.x / padded * count, count));
  __syncthreads();
  const int rank = present ? ranks[expert] : a.experts;
  if (rank < a.top_k) chosen_exp[rank] = weight;
  __syncthreads();
  if (rank >= a.top_k) return;
  const float* parts = a.renormalize ? chosen_exp : sums;
  const int count_of_parts = a.renormalize ? a.top_k : static_cast<int>(blockDim.x) / 32;
  float total = 0.0F;
#pragma unroll 8
  for (int k = 0; k < count_of_parts; ++k) total += parts[k];
  const int choice = row * a.top_k + rank;
  a.routing.weights[choice] = weight / total;
  a.routing.experts[choice] = expert;
  if (a.rows > 1) return;
  // A single row is its own grouping; padding rows take no expert.
  const bool real = a.kv_index[0] >= 0;
  a.routing.active[rank] = expert;
  a.routing.begin[rank] = rank;
  a.routing.assignments[rank] = rank;
  a.routing.items[rank] = make_int4(expert, rank, 1, 0);
  if (rank == 0) {
    a.routing.begin[a.top_k] = a.top_k;
    *a.routing.active_count = *a.routing.item_count = real ? a.top_k : 0;
    *a.routing.active_sum += *a.routing.active_count;
  }
}

/// Exclusive sums of two numbers over the block, in thread order; then their totals.
__device__ int2 exclusive_sums(int2 value, int2* scratch, int2* total) {
  const int lane = threadIdx.x % 32;
  int2 inclusive = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int x = __shfl_up_sync(kAllLanes, inclusive.x, step);
    const int y = __shfl_up_sync(kAllLanes, inclusive.y, step);
    if (lane >= step) inclusive.x += x, inclusive.y += y;
  }
  if (lane == 31) scratch[threadIdx.x / 32] = inclusive;
  __syncthreads();
  int2 before = make_int2(0, 0);
  int2 all = make_int2(0, 0);
  for (int w = 0; w < kWarps; ++w) {
    if (w == threadIdx.x / 32) before = all;
    all.x += scratch[w].x;
    all.y += scratch[w].y;
  }
  *total = all;
  return make_int2(before.x + inclusive.x - value.x, before.y + inclusive.y - value.y);
}

__global__ void __launch_bounds__(kThreads) group_kernel(const __grid_constant__ RouteArgs a) {
  __shared__ int counts[kThreads];
  __shared__ int next[kThreads];
  __shared__ int2 scratch[kWarps];
  touch(a);
  counts[threadIdx.x] = 0;
  __syncthreads();
  wait_for_inputs();
  const int choices = a.rows * a.top_k;
  for (int i = threadIdx.x; i < choices; i += kThreads)
    if (a.kv_index[i / a.top_k] >= 0) atomicAdd(&counts[a.routing.experts[i]], 1);
  __syncthreads();
  const int count = counts[threadIdx.x];
  int2 total;
  constexpr int kItem = 1 << 16;  // experts with rows below, items above
  const int items = (count + kItemRows - 1) / kItemRows;
  const int2 place = exclusive_sums(make_int2(count, items * kItem + (count > 0)), scratch, &total);
  next[threadIdx.x] = place.x;
  if (count > 0) {
    a.routing.active[place.y % kItem] = threadIdx.x;
    a.routing.begin[place.y % kItem] = place.x;
  }
  for (int i = 0; i < items; ++i)
    a.routing.items[place.y / kItem + i] =
        make_int4(threadIdx.x, place.x + i * kItemRows, min(kItemRows, count - i * kItemRows), 0);
  if (threadIdx.x == 0) {
    a.routing.begin[total.y % kItem] = total.x;
    *a.routing.active_count = total.y % kItem;
    *a.routing.active_sum += total.y % kItem;
    *a.routing.item_count = total.y / kItem;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < choices; i += kThreads)
    if (a.kv_index[i / a.top_k] >= 0)
      a.routing.assignments[atomicAdd(&next[a.routing.experts[i]], 1)] = i;
}

}  // namespace

void route(const RouteArgs& args, const Launcher& launcher) {
  const int padded = (args.experts + 31) / 32 * 32;
  int shares = 1;  // a power of two that divides the experts in fours
  while (shares < 4 && 2 * shares * padded <= kChooseThreads) shares *= 2;
  const auto threads = static_cast<unsigned>(shares * padded);
  launch(choose_kernel, launcher, static_cast<unsigned>(args.rows), threads, 0, args);
  if (args.rows > 1) launch(group_kernel, launcher, 1U, kThreads, 0, args);
}

}  // namespace nibble::cuda
