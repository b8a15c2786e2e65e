// Parts of the choice of tokens: ordered keys, the memory of a row that its thread blocks share,
// and sums, sorts and histograms of one thread block.
#pragma once

#include "backend/cuda/ops/head/choose_token.h"
#include "backend/cuda/ptx/device_math.cuh"

namespace nibble::cuda::choosing {

inline constexpr int kThreads = 512;
// Thread blocks that are resident on an SM: where that has 1,536 threads, two fit its shared
// memory.
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ / 10 == 86 || __CUDA_ARCH__ / 10 == 89 || __CUDA_ARCH__ >= 1200)
inline constexpr int kBlocksMin = 2;
#else
inline constexpr int kBlocksMin = 4;
#endif
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kFours = kSliceLogits / kThreads / 4;  // groups of 4 logits of a thread
inline constexpr int kBinBits = 10;
inline constexpr int kBins = 1 << kBinBits;
inline constexpr int kHistograms = 3;
inline constexpr uint32_t kImpossible = 0x007FFFFFU;  // key_of(-infinity)
inline constexpr int kEach = kBins / kThreads;        // bins, or tokens of a list, of a thread
static_assert(kEach * kThreads == kBins && kChoiceListMost == kBins);

/// Returns an integer above 0 that is larger for a larger logit; -0 and 0 have the same. The logit
/// is not NaN.
__device__ __forceinline__ uint32_t key_of(float logit) {
  const uint32_t bits = __float_as_uint(logit == 0.0F ? 0.0F : logit);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ __forceinline__ float logit_of(uint32_t key) {
  return __uint_as_float((key & 0x80000000U) != 0 ? key & 0x7FFFFFFFU : ~key);
}
/// Returns a number that is larger for the better token: the larger key, then the lower id.
__device__ __forceinline__ uint64_t entry_of(uint32_t key, int token) {
  return uint64_t{key} << 32 | static_cast<uint32_t>(~token);
}
__device__ __forceinline__ uint32_t key_of_entry(uint64_t entry) {
  return static_cast<uint32_t>(entry >> 32);
}
__device__ __forceinline__ int token_of_entry(uint64_t entry) {
  return ~static_cast<int>(static_cast<uint32_t>(entry));
}
__device__ __forceinline__ uint64_t swap_halves(uint64_t x) { return x << 32 | x >> 32; }

/// A list of tokens as entry_of() encodes them.
struct TokenList {
  unsigned long long entries[kChoiceListMost];
  uint32_t count;
};

struct RowHistogram {
  unsigned long long weight[kBins];
  uint32_t count[kBins];
};

/// The memory that the thread blocks of a row share; zero before a launch.
struct RowState {
  uint32_t arrived;  // arrivals of thread blocks at all barriers so far
  uint32_t unsound;
  uint32_t last;             // complement of the smallest key above kImpossible
  uint32_t raw_best;         // key of the largest raw logit
  unsigned long long first;  // entry of the best token
  unsigned long long mass;   // ChosenToken::mass
  uint32_t better;           // tokens better than the chosen one
  int32_t chosen;
  uint64_t slice_sum[kChoiceSlicesMax];
  uint32_t slice_ties[kChoiceSlicesMax];
  TokenList list;
  TokenList top;
  RowHistogram histograms[kHistograms];
};

/// The head of a launch's memory, which the states of its rows follow.
struct ChoiceState {
  uint32_t ticket;  // the next thread block's
  uint32_t unused[3];
};
static_assert(sizeof(RowState) == kChoiceStateRowBytes);
static_assert(sizeof(ChoiceState) + sizeof(RowState) == choice_state_bytes(1));

/// Weights as two words each, since shared memory has no atomic sum of 64 bits.
struct BlockHistogram {
  uint32_t count[kBins];
  uint32_t low[kBins];
  uint32_t high[kBins];
};

struct Scratch {
  uint4 keys[kSliceLogits / 4];  // keys of the slice (RowSlice)
  union {                        // used one after the other
    BlockHistogram histogram;
    uint64_t list[kChoiceListMost];
    struct {
      int token[kThreads];
      float bias[kThreads];
    } biases;
  };
  alignas(ChoiceRow) uint32_t row[sizeof(ChoiceRow) / 4];  // the words of a ChoiceRow
  uint64_t sums[kWarps];
  uint32_t maxima[3][kWarps];
  uint32_t ticket;
  int token;
  // The bin of a cut, written by the thread that has it.
  int bin;
  uint32_t bin_count, count_before;
  uint64_t weight_before;
};

/// The best and the worst of the tokens of a slice, or of the row.
struct Maxima {
  uint64_t first = 0;     // entry of the best token
  uint32_t last = 0;      // complement of the smallest key above kImpossible
  uint32_t raw_best = 0;  // key of the largest raw logit
  uint32_t unsound = 0;   // above 0: a logit is NaN or +infinity
};

/// Returns the maxima over a block to the threads of its first warp.
__device__ __forceinline__ Maxima block_max(const Maxima& own, Scratch& s) {
  const auto of_warp = [](const Maxima& m) {
    // The first entry: its key, then among those of that key the lowest token.
    const uint32_t key = __reduce_max_sync(kAllLanes, key_of_entry(m.first));
    const uint32_t rest = key_of_entry(m.first) == key ? static_cast<uint32_t>(m.first) : 0U;
    return Maxima{.first = uint64_t{key} << 32 | __reduce_max_sync(kAllLanes, rest),
                  .last = __reduce_max_sync(kAllLanes, m.last),
                  .raw_best = __reduce_max_sync(kAllLanes, m.raw_best),
                  .unsound = __reduce_max_sync(kAllLanes, m.unsound)};
  };
  const Maxima warp = of_warp(own);
  if (threadIdx.x % 32 == 0) {
    s.sums[threadIdx.x / 32] = warp.first;
    s.maxima[0][threadIdx.x / 32] = warp.last;
    s.maxima[1][threadIdx.x / 32] = warp.raw_best;
    s.maxima[2][threadIdx.x / 32] = warp.unsound;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return {};
  const unsigned lane = threadIdx.x % kWarps;
  return of_warp({s.sums[lane], s.maxima[0][lane], s.maxima[1][lane], s.maxima[2][lane]});
}

/// Returns the sum over the threads before this one; `total` becomes the sum over all.
template <typename T>
__device__ __forceinline__ T block_exclusive_sum(T own, T& total, Scratch& s) {
  const unsigned lane = threadIdx.x % 32;
  T inclusive = own;
#pragma unroll
  for (unsigned step = 1; step < 32; step *= 2) {
    const T other = __shfl_up_sync(kAllLanes, inclusive, step);
    if (lane >= step) inclusive += other;
  }
  if (lane == 31) s.sums[threadIdx.x / 32] = inclusive;
  __syncthreads();
  T before = 0;
  total = 0;
#pragma unroll
  for (unsigned w = 0; w < kWarps; ++w) {
    const T sum = static_cast<T>(s.sums[w]);
    if (w < threadIdx.x / 32) before += sum;
    total += sum;
  }
  __syncthreads();
  return before + inclusive - own;
}

__device__ __forceinline__ void clear(BlockHistogram& histogram, bool weighs) {
  for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads) {
    histogram.count[bin] = 0;
    if (weighs) histogram.low[bin] = histogram.high[bin] = 0;
  }
}
__device__ __forceinline__ void clear(RowHistogram& histogram) {
  for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads) {
    __stcg(&histogram.weight[bin], 0ULL);
    __stcg(&histogram.count[bin], 0U);
  }
}

__device__ __forceinline__ void add_weight(BlockHistogram& histogram, int bin, uint64_t weight) {
  const auto low = static_cast<uint32_t>(weight);
  auto high = static_cast<uint32_t>(weight >> 32);
  if (low > 0 && atomicAdd(&histogram.low[bin], low) + low < low) ++high;
  if (high > 0) atomicAdd(&histogram.high[bin], high);
}

__device__ __forceinline__ void merge(const BlockHistogram& from, RowHistogram& to, bool weighs) {
  for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads) {
    if (from.count[bin] == 0) continue;
    atomicAdd(&to.count[bin], from.count[bin]);
    if (!weighs) continue;
    const uint64_t weight = uint64_t{from.high[bin]} << 32 | from.low[bin];
    if (weight > 0) atomicAdd(&to.weight[bin], static_cast<unsigned long long>(weight));
  }
}

/// Copies a list to s.list, zeros after it; returns its length.
__device__ __forceinline__ int load_list(const TokenList& list, Scratch& s) {
  const auto count = static_cast<int>(__ldcg(&list.count));
  for (int i = static_cast<int>(threadIdx.x); i < kChoiceListMost; i += kThreads)
    s.list[i] = i < count ? __ldcg(&list.entries[i]) : 0;
  __syncthreads();
  return count;
}

/// Sorts the first `count` of s.list, the largest first (a bitonic sort). Zeros follow them.
__device__ __forceinline__ void sort_down(int count, Scratch& s) {
  int size = 2;
  while (size < count) size *= 2;
  const auto thread = static_cast<int>(threadIdx.x);
  for (int run = 2; run <= size; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      const int low = thread / step * 2 * step + thread % step;
      if (2 * thread < size) {
        const bool down = (low & run) == 0;
        const uint64_t x = s.list[low];
        const uint64_t y = s.list[low + step];
        if ((x < y) == down) {
          s.list[low] = y;
          s.list[low + step] = x;
        }
      }
      __syncthreads();
    }
  }
}

}  // namespace nibble::cuda::choosing
