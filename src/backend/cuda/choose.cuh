// The choice of experts of one row: the order of logits, and one warp that picks the first top_k.
// choose_kernel of route.cu makes the same choice and weights, bit for bit, with a block.
#pragma once

#include <utility>

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

/// The logit of a key that ordered() made.
__device__ __forceinline__ float unordered(uint32_t key) {
  return __uint_as_float(key & 0x80000000U ? key & 0x7FFFFFFFU : ~key);
}

/// The exchanges that sort kCount numbers, a power of two (odd-even merge sort, Batcher 1968).
template <int kCount>
struct SortNetwork {
  int low[kCount * 8] = {};
  int high[kCount * 8] = {};
  int count = 0;

  constexpr SortNetwork() {
    for (int p = 1; p < kCount; p *= 2)
      for (int k = p; k >= 1; k /= 2)
        for (int j = k % p; j + k < kCount; j += 2 * k)
          for (int i = j; i < j + k && i + k < kCount; ++i)
            if (i / (2 * p) == (i + k) / (2 * p)) {
              low[count] = i;
              high[count] = i + k;
              ++count;
            }
  }
};

/// Puts the larger key first, of equal ones that of the lower id.
__device__ __forceinline__ void exchange(uint32_t& key, int& id, uint32_t& other_key,
                                         int& other_id) {
  const bool swap = other_key > key || (other_key == key && other_id < id);
  const uint32_t first = swap ? other_key : key;
  const int first_id = swap ? other_id : id;
  other_key = swap ? key : other_key;
  other_id = swap ? id : other_id;
  key = first;
  id = first_id;
}

/// Sorts a lane's keys downwards. Places known at compile time keep them in registers.
template <int kCount, int... kSteps>
__device__ __forceinline__ void sort_down(uint32_t (&keys)[kCount], int (&ids)[kCount],
                                          std::integer_sequence<int, kSteps...>) {
  constexpr SortNetwork<kCount> kNetwork;
  (exchange(keys[kNetwork.low[kSteps]], ids[kNetwork.low[kSteps]], keys[kNetwork.high[kSteps]],
            ids[kNetwork.high[kSteps]]),
   ...);
}

/// By one warp; lane l holds experts l, 32 + l, ... Ties go to the lower id. A lane sorts its own;
/// each round takes the best of the lanes' first ones.
template <int kPerLane>
__device__ __forceinline__ void choose_by_warp(const float* logits, int experts, int top_k,
                                               bool renormalize, Choice& choice) {
  const int lane = threadIdx.x % 32;
  uint32_t keys[kPerLane];
  int ids[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    ids[i] = 32 * i + lane;
    keys[i] = ids[i] < experts ? ordered(logits[ids[i]]) : 0U;
  }
  sort_down(keys, ids, std::make_integer_sequence<int, SortNetwork<kPerLane>().count>());
  uint32_t own_key = 0;  // of rank `lane`
  uint32_t first_key = 0;
#pragma unroll 1
  for (int rank = 0; rank < top_k; ++rank) {
    const uint32_t best = __reduce_max_sync(kAllLanes, keys[0]);
    const unsigned holders = __ballot_sync(kAllLanes, keys[0] == best);
    int expert = __shfl_sync(kAllLanes, ids[0], __ffs(holders) - 1);
    if ((holders & (holders - 1)) != 0)
      expert = __reduce_min_sync(kAllLanes, keys[0] == best ? ids[0] : INT32_MAX);
    if (rank == 0) first_key = best;
    if (lane == rank) {
      own_key = best;
      choice.experts[rank] = expert;
    }
    const bool taken = ids[0] == expert;
#pragma unroll
    for (int i = 0; i + 1 < kPerLane; ++i) {
      keys[i] = taken ? keys[i + 1] : keys[i];
      ids[i] = taken ? ids[i + 1] : ids[i];
    }
    if (taken) keys[kPerLane - 1] = 0U;
  }
  const float highest = unordered(first_key);
  const float weight = lane < top_k ? expf(unordered(own_key) - highest) : 0.0F;
  float total = 0.0F;
  if (renormalize) {
#pragma unroll 8
    for (int rank = 0; rank < top_k; ++rank) total += __shfl_sync(kAllLanes, weight, rank);
  } else {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int expert = 32 * i + lane;
      total += warp_sum(expert < experts ? expf(logits[expert] - highest) : 0.0F);
    }
  }
  if (lane < top_k) choice.weights[lane] = weight / total;
}

}  // namespace nibble::cuda
