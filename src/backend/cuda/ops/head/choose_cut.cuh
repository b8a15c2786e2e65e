// The cut below which tokens are dropped, by rank or by weight, found in a histogram of a row.
#pragma once

#include "backend/cuda/ops/head/choose_parts.cuh"

namespace nibble::cuda::choosing {

/// Says how many of the best tokens are kept: a number of them, or those with less than a share of
/// the weight before them.
struct Goal {
  uint32_t rank = 0;                      // 0: by weight
  uint64_t share = ChoiceRule::kKeepAll;  // share of the total weight, in units of 2^-64
  uint64_t total = 0;                     // weight that it is a share of; 0: of all keys
  bool weighs = false;                    // weights are added up
};

/// Keys from `low` to `high` hold the last token to keep; larger ones are all kept.
struct Cut {
  uint32_t low = 0;
  uint32_t high = 0;
  uint32_t count_before = 0;   // keys above high
  uint32_t count = 0;          // keys from low to high
  uint64_t weight_before = 0;  // weight of the keys above high
  uint64_t total_weight = 0;   // weight of all keys
  uint32_t rank = 0;           // kept tokens; 0: by weight, and
  uint64_t bound = 0;          // tokens with less than this before them are kept
  int bin = 0;                 // bin of the last histogram

  __device__ uint32_t through() const { return count_before + count; }
  /// Returns the number of kept tokens where low and high are one key, with `weight_each` a token.
  __device__ uint32_t ties(uint64_t weight_each) const {
    if (rank > 0) return rank - count_before;
    const uint64_t wanted = (bound - weight_before + weight_each - 1) / weight_each;
    return wanted < count ? static_cast<uint32_t>(wanted) : count;
  }
};

/// Finds the bin of a row's histogram that the last kept token is in. `outer`: the cut that the
/// histogram divides; without bounds before the first one.
__device__ __forceinline__ Cut find_bin(const RowHistogram& histogram, const Goal& goal,
                                        const Cut& outer, Scratch& s) {
  const int first = kEach * static_cast<int>(threadIdx.x);
  uint32_t count[kEach];
  uint64_t weight[kEach];
  uint32_t own_count = 0;
  uint64_t own_weight = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    own_count += count[i] = __ldcg(&histogram.count[first + i]);
    own_weight += weight[i] = goal.weighs ? __ldcg(&histogram.weight[first + i]) : 0;
  }
  uint32_t all = 0;
  uint64_t sum = 0;
  uint32_t count_before = block_exclusive_sum(own_count, all, s) + outer.count_before;
  uint64_t weight_before = outer.weight_before;
  if (goal.weighs) weight_before += block_exclusive_sum(own_weight, sum, s);
  Cut cut = outer;
  if (outer.rank == 0 && outer.bound == 0) {
    cut.total_weight = sum;
    if (goal.rank > 0)
      cut.rank = min(goal.rank, all);
    else
      cut.bound = nucleus_bound(goal.total > 0 ? goal.total : sum, goal.share);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const bool here = cut.rank > 0
                          ? count_before < cut.rank && cut.rank <= count_before + count[i]
                          : weight_before < cut.bound && cut.bound <= weight_before + weight[i];
    if (here) {
      s.bin = first + i;
      s.bin_count = count[i];
      s.count_before = count_before;
      s.weight_before = weight_before;
    }
    count_before += count[i];
    weight_before += weight[i];
  }
  __syncthreads();
  cut.bin = s.bin;
  cut.count = s.bin_count;
  cut.count_before = s.count_before;
  cut.weight_before = s.weight_before;
  __syncthreads();
  return cut;
}

/// Returns the first key from `low` to `high` for which `reached` holds, as it does for all later
/// ones; high + 1 if there is none.
template <typename Reached>
__device__ __forceinline__ uint32_t first_key(uint32_t low, uint32_t high, const Reached& reached) {
  uint32_t end = high + 1;
  while (low < end) {
    const uint32_t middle = low + (end - low) / 2;
    if (reached(middle))
      end = middle;
    else
      low = middle + 1;
  }
  return low;
}

}  // namespace nibble::cuda::choosing
