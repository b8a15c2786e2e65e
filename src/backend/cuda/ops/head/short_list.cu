// Short lists: of each row of logits [V] the 128 best sampleable ones in order, the sums of
// exp((logit - best) / T) over the others and over all, and the group of 64 in which a draw falls.
// Two launches. group: maximum and sum of every 64 neighbours, in one reading. list, one block a
// row: the 128 groups of the largest maxima (of equal ones the earlier) hold the 128 best logits,
// since a logit outside of them has 128 maxima before it; a bisected threshold finds the groups,
// counted ranks the logits. A row's sums are added in an order that its length alone decides.
// V up to 2^18, any card. Bound: the bytes of the logits, 4 V rows, from the L2 or from memory; the
// first launch takes 64 rows of 248,320 at 3.0 TB/s on an H200, the second is all latency.
#include "backend/cuda/ops/head/short_list.h"
#include "backend/cuda/ops/route/choose.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kQuads = kListGroup / 4;  // lanes of a group, four neighbours each

constexpr int kGroupThreads = 256;
constexpr int kGroupSteps = 4;  // of a warp, 128 logits each
constexpr int kGroupLogits = kGroupThreads * 4 * kGroupSteps;

constexpr int kListThreads = 1024;
constexpr int kListWarps = kListThreads / 32;
constexpr int kThreadGroups = kListVocabMax / kListGroup / kListThreads;
constexpr int kThreadLogits = kListTokens * kListGroup / kListThreads;
constexpr int kRankedMost = 192;  // logits whose ranks are counted
static_assert(kListGroup % kThreadLogits == 0 && 32 % kThreadLogits == 0);
constexpr uint32_t kImpossible = 0x007FFFFFU;  // ordered(-infinity)

/// Key of a logit: as ordered(), equal for -0 and 0.
__device__ __forceinline__ uint32_t key_of(float logit) {
  return ordered(logit == 0.0F ? 0.0F : logit);
}

/// Four logits from `token` on; zeros beyond the row.
template <bool kAligned>
__device__ __forceinline__ float4 four_logits(const float* row, int token, int vocab) {
  if constexpr (kAligned) {
    if (token < vocab) return *reinterpret_cast<const float4*>(row + token);
    return make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  }
  const auto at = [&](int i) { return token + i < vocab ? row[token + i] : 0.0F; };
  return make_float4(at(0), at(1), at(2), at(3));
}

/// 2^x to 2^-22 of itself; 0 below the normal numbers.
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Tokens that may not be sampled as -infinity; NaN stays, and infinity becomes it.
__device__ __forceinline__ void forbid(float (&v)[4], uint32_t allowed) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if ((allowed >> k & 1U) == 0) v[k] = v[k] < INFINITY ? -INFINITY : NAN;
}

template <bool kAligned>
__global__ void __launch_bounds__(kGroupThreads)
    group_kernel(const __grid_constant__ ShortListArgs a) {
  touch(a);
  const int lane = threadIdx.x % 32;
  const int begin = blockIdx.x * kGroupLogits + threadIdx.x / 32 * (128 * kGroupSteps) + 4 * lane;
  const int row = blockIdx.y;
  const int groups = static_cast<int>(list_groups(a.vocab));
  const float* logits = a.logits + static_cast<int64_t>(row) * a.vocab;
  wait_for_inputs();
  const float scale = a.draws[row].scale;
  float4 x[kGroupSteps];
  uint32_t allowed[kGroupSteps];
#pragma unroll
  for (int i = 0; i < kGroupSteps; ++i) {
    const int token = begin + 128 * i;
    x[i] = four_logits<kAligned>(logits, token, a.vocab);
    allowed[i] = token < a.vocab ? a.sampleable[token / 32] >> (token % 32) & 0xFU : 0U;
  }
#pragma unroll
  for (int i = 0; i < kGroupSteps; ++i) {
    float v[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
    if (allowed[i] != 0xFU) forbid(v, allowed[i]);
    float best = fmaxf(fmaxf(v[0], v[1]), fmaxf(v[2], v[3]));
#pragma unroll
    for (int step = kQuads / 2; step > 0; step /= 2)
      best = fmaxf(best, __shfl_xor_sync(kAllLanes, best, step));
    // NaN and infinity make NaN here.
    const float from = best == -INFINITY ? 0.0F : best;
    float mass = 0.0F;
#pragma unroll
    for (int k = 0; k < 4; ++k) mass += power_of_two((v[k] - from) * scale);
#pragma unroll
    for (int step = kQuads / 2; step > 0; step /= 2) mass += __shfl_xor_sync(kAllLanes, mass, step);
    const uint32_t lanes = __ballot_sync(kAllLanes, allowed[i] != 0) >> (lane & kQuads);
    const bool any = (lanes & ((1U << kQuads) - 1)) != 0;
    const int group = (begin + 128 * i) / kListGroup;
    if (lane % kQuads == 0 && group < groups)
      a.groups[static_cast<int64_t>(row) * groups + group] = {any ? key_of(best) : 0U, mass};
  }
}

/// Sums and scans over a block of kListThreads, in an order that the threads' numbers decide.
struct BlockScratch {
  uint2 reached[2][kListWarps];
  uint32_t keys[kListWarps];
  int counts[kListWarps];
  float masses[kListWarps];
};

/// Counts the threads' keys that reach each of three rising bounds. `turn` alternates from call to
/// call.
template <int kCount>
__device__ __forceinline__ int3 counts_from(const uint32_t (&keys)[kCount], uint3 bounds, int turn,
                                            BlockScratch& scratch) {
  constexpr uint32_t kOne = 1U << 16;
  uint32_t two = 0;
  uint32_t third = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    two += (keys[i] >= bounds.x ? 1U : 0U) + (keys[i] >= bounds.y ? kOne : 0U);
    third += keys[i] >= bounds.z ? 1U : 0U;
  }
  two = __reduce_add_sync(kAllLanes, two);
  third = __reduce_add_sync(kAllLanes, third);
  uint2* sums = scratch.reached[turn & 1];
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = make_uint2(two, third);
  __syncthreads();
  const int lane = threadIdx.x % 32;
  const uint2 of_warp = lane < kListWarps ? sums[lane] : make_uint2(0, 0);
  two = __reduce_add_sync(kAllLanes, of_warp.x);
  third = __reduce_add_sync(kAllLanes, of_warp.y);
  return make_int3(static_cast<int>(two % kOne), static_cast<int>(two / kOne),
                   static_cast<int>(third));
}

/// Exclusive sum over the threads before; `total` over all.
__device__ __forceinline__ int counts_before(int value, int* total, BlockScratch& scratch) {
  const int lane = threadIdx.x % 32;
  int inclusive = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, inclusive, step);
    if (lane >= step) inclusive += other;
  }
  __syncthreads();
  if (lane == 31) scratch.counts[threadIdx.x / 32] = inclusive;
  __syncthreads();
  const int of_warp = lane < kListWarps ? scratch.counts[lane] : 0;
  *total = __reduce_add_sync(kAllLanes, of_warp);
  const int earlier = lane < static_cast<int>(threadIdx.x) / 32 ? of_warp : 0;
  return __reduce_add_sync(kAllLanes, earlier) + inclusive - value;
}

/// The same of F32.
__device__ __forceinline__ float mass_before(float value, float* total, BlockScratch& scratch) {
  const int lane = threadIdx.x % 32;
  float inclusive = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(kAllLanes, inclusive, step);
    if (lane >= step) inclusive += other;
  }
  float exclusive = __shfl_up_sync(kAllLanes, inclusive, 1);
  if (lane == 0) exclusive = 0.0F;
  __syncthreads();
  if (lane == 31) scratch.masses[threadIdx.x / 32] = inclusive;
  __syncthreads();
  const float of_warp = lane < kListWarps ? scratch.masses[lane] : 0.0F;
  *total = warp_sum(of_warp);
  return warp_sum(lane < static_cast<int>(threadIdx.x) / 32 ? of_warp : 0.0F) + exclusive;
}

/// At least the kListTokens largest keys above 0 of a block, or all if there are fewer, and at most
/// kMost: those above a bound, and of those that are the bound the ones of earlier threads and
/// places. `low` is 1, or at least kListTokens keys reach it; none is above `high`.
template <int kCount, int kMost>
struct Best {
  uint32_t bound;
  int equal;  // so many that are the bound
  int first;  // rank by thread and place of the thread's first one
  int equal_before;
  int count;  // of all that are chosen

  __device__ Best(const uint32_t (&keys)[kCount], uint32_t low, uint32_t high,
                  BlockScratch& scratch) {
    if (tally(keys, low, scratch) <= kMost || low == high) return;
    int reached = INT32_MAX;
    for (int turn = 0; low < high && reached > kMost; ++turn) {
      const uint32_t quarter = (high - low) / 4;
      const uint3 b = make_uint3(low + max(quarter, 1U), low + max(2 * quarter, 1U),
                                 low + max(3 * quarter, 1U));
      const int3 n = counts_from(keys, b, turn, scratch);
      if (n.z >= kListTokens) {
        low = b.z;
        reached = n.z;
      } else if (n.y >= kListTokens) {
        low = b.y;
        high = b.z - 1;
        reached = n.y;
      } else if (n.x >= kListTokens) {
        low = b.x;
        high = b.y - 1;
        reached = n.x;
      } else {
        high = b.x - 1;
      }
    }
    tally(keys, low, scratch);
  }

  /// Sets everything for this bound; how many keys reach it.
  __device__ __forceinline__ int tally(const uint32_t (&keys)[kCount], uint32_t low,
                                       BlockScratch& scratch) {
    constexpr int kOne = 1 << 16;  // larger ones below, equal ones above
    int own = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) own += (keys[i] > low) + (keys[i] == low ? kOne : 0);
    int total = 0;
    const int before = counts_before(own, &total, scratch);
    bound = low;
    equal = min(total / kOne, kMost - total % kOne);
    equal_before = before / kOne;
    first = before % kOne + min(equal_before, equal);
    count = total % kOne + equal;
    return total % kOne + total / kOne;
  }

  /// True if the next of the thread's keys is chosen; they are passed in their order.
  __device__ __forceinline__ bool takes(uint32_t key) {
    return key > bound || (key == bound && equal_before++ < equal);
  }
};

struct ListScratch {
  BlockScratch block;
  int chosen[kListTokens];  // groups, ascending
  uint32_t keys[kRankedMost];
  int ids[kRankedMost];  // ascending
  int drawn;
  ShortListRow list;
};

/// Largest key of the row, and one that at least kListTokens groups reach, or 1: each warp finds
/// its own so many best. The same in every thread.
struct KeyRange {
  uint32_t low = 1;
  uint32_t high;

  __device__ KeyRange(const uint32_t (&keys)[kThreadGroups], int groups, BlockScratch& scratch) {
    constexpr int kWarpsMin = kListWarps / 2;
    const int warps = groups / (32 * kThreadGroups);  // that have all their groups
    const int rounds = warps < kWarpsMin ? 1 : (kListTokens + warps - 1) / warps;
    const int lane = threadIdx.x % 32;
    uint32_t left[kThreadGroups];
#pragma unroll
    for (int i = 0; i < kThreadGroups; ++i) left[i] = keys[i];
    uint32_t best = 0;
    uint32_t first = 0;
    for (int round = 0; round < rounds; ++round) {
      uint32_t own = 0;
#pragma unroll
      for (int i = 0; i < kThreadGroups; ++i) own = max(own, left[i]);
      best = __reduce_max_sync(kAllLanes, own);
      if (round == 0) first = best;
      bool taken = lane != __ffs(__ballot_sync(kAllLanes, own == best)) - 1;
#pragma unroll
      for (int i = 0; i < kThreadGroups; ++i)
        if (!taken && left[i] == best) left[i] = 0, taken = true;
    }
    if (lane == 0) {
      scratch.keys[threadIdx.x / 32] = first;
      scratch.reached[0][threadIdx.x / 32].x = best;
    }
    __syncthreads();
    high = max(__reduce_max_sync(kAllLanes, lane < kListWarps ? scratch.keys[lane] : 0U), 1U);
    const uint32_t of_warp = lane < warps ? scratch.reached[0][lane].x : 0xFFFFFFFFU;
    if (warps >= kWarpsMin) low = max(__reduce_min_sync(kAllLanes, of_warp), 1U);
    __syncthreads();
  }
};

/// Writes the group that holds the draw: the last one with mass that begins at or below u of all.
__device__ __forceinline__ void write_draw(const ShortListArgs& a, const float* logits, float u,
                                           const float (&masses)[kThreadGroups],
                                           ListScratch& scratch) {
  float own = 0.0F;
#pragma unroll
  for (int i = 0; i < kThreadGroups; ++i) own += masses[i];
  float total = 0.0F;
  const float before_own = mass_before(own, &total, scratch.block);
  const float target = u * total;
  const int first = threadIdx.x * kThreadGroups;
  float before = before_own;
  int drawn = 0;
#pragma unroll
  for (int i = 0; i < kThreadGroups; ++i) {
    if (masses[i] > 0.0F && before <= target) drawn = first + i;
    before += masses[i];
  }
  atomicMax(&scratch.drawn, drawn);
  __syncthreads();
  drawn = scratch.drawn;
  const int begin = drawn * kListGroup;
  ShortListRow& list = scratch.list;
  if (drawn / kThreadGroups == static_cast<int>(threadIdx.x)) {
    before = before_own;
#pragma unroll
    for (int i = 0; i < kThreadGroups; ++i)
      if (first + i < drawn) before += masses[i];
    list.before = drawn == 0 ? 0.0F : before;
    list.total = total;
    list.sound = total == total ? 1 : 0;
    list.drawn_begin = begin;
    list.drawn_count = min(kListGroup, a.vocab - begin);
  }
  const int token = begin + static_cast<int>(threadIdx.x);
  if (threadIdx.x < kListGroup) list.drawn[threadIdx.x] = token < a.vocab ? logits[token] : 0.0F;
}

/// The kThreadLogits logits of a thread among those of the chosen groups; no key is above that of
/// its group. Nothing waits for them until keys() is called.
template <bool kAligned>
struct ThreadLogits {
  float4 logits[kThreadLogits / 4];
  uint32_t allowed = 0;
  int first = 0;  // token

  __device__ ThreadLogits(const ShortListArgs& a, const float* row, int groups, const int* chosen) {
    const int place = threadIdx.x * kThreadLogits;
    if (place / kListGroup < groups)
      first = chosen[place / kListGroup] * kListGroup + place % kListGroup;
    const bool there = place / kListGroup < groups && first < a.vocab;
    if (there) allowed = a.sampleable[first / 32] >> (first % 32);
#pragma unroll
    for (int i = 0; i < kThreadLogits / 4; ++i)
      logits[i] = four_logits<kAligned>(row, there ? first + 4 * i : a.vocab, a.vocab);
  }
  __device__ __forceinline__ void keys(uint32_t (&to)[kThreadLogits]) const {
#pragma unroll
    for (int i = 0; i < kThreadLogits / 4; ++i) {
      const float v[4] = {logits[i].x, logits[i].y, logits[i].z, logits[i].w};
#pragma unroll
      for (int k = 0; k < 4; ++k)
        to[4 * i + k] = (allowed >> (4 * i + k) & 1U) != 0 && v[k] < INFINITY ? key_of(v[k]) : 0U;
    }
  }
};

/// Writes the best of the chosen tokens in order: four threads find the rank of each. Returns the
/// thread's share of the mass of the others.
__device__ __forceinline__ float write_best(int count, float best, float scale,
                                            ListScratch& scratch) {
  constexpr int kShares = 4;
  const int share = threadIdx.x % kShares;
  float rest = 0.0F;
  for (int at = threadIdx.x / kShares; at < kRankedMost; at += kListThreads / kShares) {
    const uint32_t key = at < count ? scratch.keys[at] : 0U;
    int rank = 0;
    for (int j = share; j < count; j += kShares)
      rank += scratch.keys[j] > key || (scratch.keys[j] == key && j < at);
#pragma unroll
    for (int step = kShares / 2; step > 0; step /= 2)
      rank += __shfl_xor_sync(kAllLanes, rank, step);
    if (at >= count || share != 0) continue;
    if (rank < kListTokens) {
      scratch.list.tokens[rank] = scratch.ids[at];
      scratch.list.logits[rank] = unordered(key);
    } else if (key > kImpossible) {
      rest += power_of_two((unordered(key) - best) * scale);
    }
  }
  return rest;
}

template <bool kAligned>
__global__ void __launch_bounds__(kListThreads)
    list_kernel(const __grid_constant__ ShortListArgs a) {
  __shared__ ListScratch scratch;
  touch(a);
  const int row = blockIdx.x;
  const int groups = static_cast<int>(list_groups(a.vocab));
  const float* logits = a.logits + static_cast<int64_t>(row) * a.vocab;
  if (threadIdx.x == 0) scratch.drawn = 0;
  wait_for_inputs();
  const float scale = a.draws[row].scale;
  const int first = threadIdx.x * kThreadGroups;
  uint32_t keys[kThreadGroups] = {};
  float masses[kThreadGroups] = {};
#pragma unroll
  for (int i = 0; i < kThreadGroups; ++i) {
    if (first + i >= groups) continue;
    const ListGroup group = a.groups[static_cast<int64_t>(row) * groups + first + i];
    keys[i] = group.key;
    masses[i] = group.mass;
  }
  const KeyRange range(keys, groups, scratch.block);
  const float best = unordered(range.high);
#pragma unroll
  for (int i = 0; i < kThreadGroups; ++i)
    if (keys[i] > kImpossible) masses[i] *= power_of_two((unordered(keys[i]) - best) * scale);

  Best<kThreadGroups, kListTokens> best_groups(keys, range.low, range.high, scratch.block);
  float rest = 0.0F;
  int sampleable = 0;  // groups
  int place = best_groups.first;
#pragma unroll
  for (int i = 0; i < kThreadGroups; ++i) {
    sampleable += keys[i] > 0;
    if (best_groups.takes(keys[i]))
      scratch.chosen[place++] = first + i;
    else
      rest += masses[i];
  }
  __syncthreads();
  const ThreadLogits<kAligned> own(a, logits, best_groups.count, scratch.chosen);
  write_draw(a, logits, a.draws[row].u, masses, scratch);
  uint32_t own_keys[kThreadLogits];
  own.keys(own_keys);
  const uint32_t low = best_groups.count == kListTokens ? best_groups.bound : 1U;
  Best<kThreadLogits, kRankedMost> best_logits(own_keys, low, range.high, scratch.block);
  place = best_logits.first;
#pragma unroll
  for (int i = 0; i < kThreadLogits; ++i) {
    sampleable += (own_keys[i] > 0) << 16;
    if (best_logits.takes(own_keys[i])) {
      scratch.keys[place] = own_keys[i];
      scratch.ids[place++] = own.first + i;
    } else if (own_keys[i] > kImpossible) {
      rest += power_of_two((unordered(own_keys[i]) - best) * scale);
    }
  }
  __syncthreads();
  rest = warp_sum(rest + write_best(best_logits.count, best, scale, scratch));
  sampleable = __reduce_add_sync(kAllLanes, sampleable);
  if (threadIdx.x % 32 == 0) {
    scratch.block.masses[threadIdx.x / 32] = rest;
    scratch.block.keys[threadIdx.x / 32] = static_cast<uint32_t>(sampleable);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const bool there = threadIdx.x < kListWarps;
    rest = warp_sum(there ? scratch.block.masses[threadIdx.x] : 0.0F);
    const uint32_t all = __reduce_add_sync(kAllLanes, there ? scratch.block.keys[threadIdx.x] : 0U);
    if (threadIdx.x == 0) {
      const int listed = min(best_logits.count, kListTokens);
      scratch.list.rest = rest;
      scratch.list.count = listed;
      scratch.list.all = all == static_cast<uint32_t>(best_groups.count + (listed << 16)) ? 1 : 0;
    }
  }
  __syncthreads();
  constexpr int kWords = sizeof(ShortListRow) / 4;
  static_assert(kWords <= kListThreads);
  if (threadIdx.x < kWords)
    reinterpret_cast<uint32_t*>(a.lists + row)[threadIdx.x] =
        reinterpret_cast<const uint32_t*>(&scratch.list)[threadIdx.x];
}

}  // namespace

void short_lists(const ShortListArgs& args, const Launcher& launcher) {
  const bool aligned = args.vocab % 4 == 0;
  const dim3 grid(static_cast<unsigned>((args.vocab + kGroupLogits - 1) / kGroupLogits),
                  static_cast<unsigned>(args.rows));
  launch(aligned ? group_kernel<true> : group_kernel<false>, launcher, grid, kGroupThreads, 0,
         args);
  launch(aligned ? list_kernel<true> : list_kernel<false>, launcher,
         static_cast<unsigned>(args.rows), kListThreads, 0, args);
}

}  // namespace nibble::cuda
