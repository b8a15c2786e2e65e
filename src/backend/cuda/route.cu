// From router logits to the rows of each expert: softmax, top-k with ties to the lower id, then the
// assignments grouped by expert in the order of their rows. One block; up to 64 rows at its best.
#include "backend/cuda/device_math.cuh"
#include "backend/cuda/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kPerLane = kRouteExpertsMax / 32;

/// Larger float, then lower id, has the larger key. NaN sorts above all and ends as NaN weights.
__device__ __forceinline__ uint64_t key_of(float logit, int expert) {
  uint32_t bits = __float_as_uint(logit);
  bits = bits & 0x80000000U ? ~bits : bits | 0x80000000U;
  return static_cast<uint64_t>(bits) << 32 | (0xFFFFFFFFU - static_cast<uint32_t>(expert));
}

/// One warp, one row.
__device__ void choose(const RouteArgs& a, int row) {
  const int lane = threadIdx.x % 32;
  const float* logits = a.logits + row * a.stride;
  uint64_t keys[kPerLane];
  float highest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = lane + 32 * i;
    keys[i] = 0;
    if (expert >= a.experts) continue;
    const float logit = logits[expert];
    keys[i] = key_of(logit, expert);
    highest = fmaxf(highest, logit);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, step));
  float total = 0.0F;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i)
    if (lane + 32 * i < a.experts) total += expf(logits[lane + 32 * i] - highest);
  total = warp_sum(total);

  float mine = 0.0F;  // weight of the choice whose rank is this lane
  int my_expert = 0;
  float chosen = 0.0F;
  for (int k = 0; k < a.top_k; ++k) {
    uint64_t best = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) best = keys[i] > best ? keys[i] : best;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const uint64_t other = __shfl_xor_sync(kAllLanes, best, step);
      best = other > best ? other : best;
    }
    const int expert = static_cast<int>(0xFFFFFFFFU - static_cast<uint32_t>(best));
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (expert == lane + 32 * i) keys[i] = 0;
    const float weight = expf(logits[expert] - highest) / total;
    chosen += weight;
    if (lane == k) {
      mine = weight;
      my_expert = expert;
    }
  }
  if (lane >= a.top_k) return;
  a.routing.weights[row * a.top_k + lane] = a.renormalize ? mine / chosen : mine;
  a.routing.experts[row * a.top_k + lane] = my_expert;
}

/// Exclusive sum over the block in thread order; `total` gets the sum of all.
__device__ int exclusive_sum(int value, int* scratch, int* total) {
  const int lane = threadIdx.x % 32;
  int inclusive = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int below = __shfl_up_sync(kAllLanes, inclusive, step);
    if (lane >= step) inclusive += below;
  }
  __syncthreads();
  if (lane == 31) scratch[threadIdx.x / 32] = inclusive;
  __syncthreads();
  int before = 0;
  int all = 0;
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w == threadIdx.x / 32) before = all;
    all += scratch[w];
  }
  *total = all;
  return before + inclusive - value;
}

__global__ void __launch_bounds__(kThreads) route_kernel(const __grid_constant__ RouteArgs a) {
  __shared__ int scratch[kThreads / 32];
  wait_for_inputs();
  const int warp = threadIdx.x / 32;
  for (int row = warp; row < a.rows; row += kThreads / 32) choose(a, row);
  __syncthreads();

  const int expert = threadIdx.x;
  const int choices = a.rows * a.top_k;
  int count = 0;
  if (expert < a.experts)
    for (int i = 0; i < choices; ++i)
      count += a.routing.experts[i] == expert && a.kv_index[i / a.top_k] >= 0;
  int assigned = 0;
  int begin = exclusive_sum(count, scratch, &assigned);
  int active = 0;
  const int place = exclusive_sum(count > 0, scratch, &active);
  if (threadIdx.x == 0) {
    *a.routing.active_count = active;
    a.routing.begin[active] = assigned;
  }
  if (count == 0) return;
  a.routing.active[place] = expert;
  a.routing.begin[place] = begin;
  for (int i = 0; i < choices; ++i)
    if (a.routing.experts[i] == expert && a.kv_index[i / a.top_k] >= 0)
      a.routing.assignments[begin++] = i;
}

}  // namespace

void route(const RouteArgs& args, const Launcher& launcher) {
  launch(route_kernel, launcher, 1U, kThreads, 0, args);
}

}  // namespace nibble::cuda
