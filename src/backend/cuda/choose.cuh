// The choice of experts of one row: the order of logits, and one warp that picks the first top_k.
// choose_kernel of route.cu makes the same choice and weights, bit for bit, with a block.
#pragma once

#include "backend/cuda/device_math.cuh"
#include "backend/cuda/kernels.h"

namespace nibble::cuda {

/// Order of floats as unsigned integers. NaN is largest, so its row ends with NaN weights.
__device__ __forceinline__ uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits & 0x80000000U ? ~bits : bits | 0x80000000U;
}

struct Choice {
  int experts[kRouteTopKMax];
  float weights[kRouteTopKMax];
};

/// By one warp; lane l holds experts l, 32 + l, ... Ties go to the lower id.
template <int kPerLane>
__device__ __forceinline__ void choose_by_warp(const float* logits, int experts, int top_k,
                                               bool renormalize, Choice& choice) {
  const int lane = threadIdx.x % 32;
  uint32_t keys[kPerLane];
  float values[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = 32 * i + lane;
    values[i] = expert < experts ? logits[expert] : -INFINITY;
    keys[i] = expert < experts ? ordered(values[i]) : 0U;
  }
  float highest = 0.0F;
  float total = 0.0F;
  for (int rank = 0; rank < top_k; ++rank) {
    uint32_t best = keys[0];
#pragma unroll
    for (int i = 1; i < kPerLane; ++i) best = max(best, keys[i]);
    best = __reduce_max_sync(kAllLanes, best);
    int found = INT32_MAX;
    float value = 0.0F;
#pragma unroll
    for (int i = kPerLane - 1; i >= 0; --i)
      if (keys[i] == best) {
        found = 32 * i + lane;
        value = values[i];
      }
    const int expert = __reduce_min_sync(kAllLanes, found);
    value = __shfl_sync(kAllLanes, value, expert % 32);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (32 * i + lane == expert) keys[i] = 0U;
    if (rank == 0) highest = value;
    const float weight = expf(value - highest);
    total += weight;
    if (lane == 0) {
      choice.experts[rank] = expert;
      choice.weights[rank] = weight;
    }
  }
  if (!renormalize) {
    total = 0.0F;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      total += warp_sum(32 * i + lane < experts ? expf(values[i] - highest) : 0.0F);
  }
  __syncwarp();
  if (lane < top_k) choice.weights[lane] = choice.weights[lane] / total;
}

}  // namespace nibble::cuda
