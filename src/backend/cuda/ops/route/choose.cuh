// One warp chooses the experts of a row: this file has the order of logits, the first top_k and
// their weights, and sums over a block.
#pragma once

#include <utility>

#include "backend/cuda/ops/route/route.h"
#include "backend/cuda/ptx/device_math.cuh"

namespace nibble::cuda {

/// Returns a key by which floats are ordered as unsigned integers. NaN is the largest, so its row
/// ends with NaN weights.
__device__ __forceinline__ uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits & 0x80000000U ? ~bits : bits | 0x80000000U;
}

/// Returns the logit of a key that ordered() made.
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

/// The keys of a choice that weigh_by_warp() reads: the largest, and the one of rank `lane`.
struct ChosenKeys {
  uint32_t first = 0;
  uint32_t own = 0;
};

/// One warp writes the first top_k experts to chosen[]. Lane l has experts l, 32 + l, ... and sorts
/// them; each round takes the best of the lanes' first ones. With kTies a round also finds the
/// lowest id among equal ones; without it, false is returned where logits of two lanes are equal.
template <int kPerLane, bool kTies>
__device__ __forceinline__ bool take_first(const float* logits, int experts, int top_k, int* chosen,
                                           ChosenKeys& of) {
  const int lane = threadIdx.x % 32;
  uint32_t keys[kPerLane];
  int ids[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    ids[i] = 32 * i + lane;
    keys[i] = ids[i] < experts ? ordered(logits[ids[i]]) : 0U;
  }
  sort_down(keys, ids, std::make_integer_sequence<int, SortNetwork<kPerLane>().count>());
  unsigned seen_twice = 0;
#pragma unroll 1
  for (int rank = 0; rank < top_k; ++rank) {
    const uint32_t best = __reduce_max_sync(kAllLanes, keys[0]);
    bool taken = keys[0] == best;
    const unsigned holders = __ballot_sync(kAllLanes, taken);
    const unsigned others = holders & (holders - 1);
    if constexpr (kTies) {
      if (others != 0) taken = __reduce_min_sync(kAllLanes, taken ? ids[0] : INT32_MAX) == ids[0];
    } else {
      seen_twice |= others;
    }
    if (taken && (kTies || others == 0)) chosen[rank] = ids[0];
    if (rank == 0) of.first = best;
    if (lane == rank) of.own = best;
#pragma unroll
    for (int i = 0; i + 1 < kPerLane; ++i) {
      keys[i] = taken ? keys[i + 1] : keys[i];
      ids[i] = taken ? ids[i + 1] : ids[i];
    }
    if (taken) keys[kPerLane - 1] = 0U;
  }
  return seen_twice == 0;
}

/// Ties go to the lower expert.
template <int kPerLane>
__device__ __forceinline__ ChosenKeys choose_by_warp(const float* logits, int experts, int top_k,
                                                     int* chosen) {
  ChosenKeys of;
  if (take_first<kPerLane, false>(logits, experts, top_k, chosen, of)) return of;
  __syncwarp();  // what some lanes wrote is written again by others
  take_first<kPerLane, true>(logits, experts, top_k, chosen, of);
  return of;
}

/// Returns in lane `rank` the weight of that rank, in generation arithmetic.
__device__ __forceinline__ float weigh_by_warp(const float* logits, int experts, int top_k,
                                               bool renormalize, const ChosenKeys& of) {
  const int lane = threadIdx.x % 32;
  const float highest = unordered(of.first);
  const float weight = lane < top_k ? expf(unordered(of.own) - highest) : 0.0F;
  float total = 0.0F;
  if (renormalize) {
#pragma unroll 8
    for (int rank = 0; rank < top_k; ++rank) total += __shfl_sync(kAllLanes, weight, rank);
  } else {
#pragma unroll 1
    for (int first = 0; first < experts; first += 32) {
      const int expert = first + lane;
      total += warp_sum(expert < experts ? expf(logits[expert] - highest) : 0.0F);
    }
  }
  return weight / total;
}

/// Returns the exclusive sums of two numbers over a block of kWarps warps, in thread order, and
/// their totals. `scratch` has room for kWarps pairs.
template <int kWarps>
__device__ __forceinline__ int2 exclusive_sums(int2 value, int2* scratch, int2* total) {
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

}  // namespace nibble::cuda
