// Short lists: of each row of logits [V] the 128 best sampleable ones in order, the sums of
// exp((logit - best) / T) over the others and over all, and the group of 64 in which a draw falls.
// Two launches. group: maximum and sum of every 64 neighbours, in one reading. list, one block a
// row: the 128 groups of the largest maxima (of equal ones the earlier) hold the 128 best logits,
// since a logit outside of them has 128 maxima before it; both choices bisect a threshold. A
// row's sums are added in an order that its length alone decides. V up to 2^18, any card.
// Bound: the bytes of the logits, 4 V rows, from the L2 or from memory.
#include "backend/cuda/choose.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/short_list.h"

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
static_assert(kThreadLogits == 8 && kListGroup % kThreadLogits == 0);
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
    const float v[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
    uint32_t key = 0;
    bool sound = true;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      sound = sound && v[k] < INFINITY;
      if ((allowed[i] >> k & 1U) != 0) key = max(key, key_of(v[k]));
    }
#pragma unroll
    for (int step = kQuads / 2; step > 0; step /= 2)
      key = max(key, __shfl_xor_sync(kAllLanes, key, step));
    float mass = 0.0F;
    const float best = unordered(key);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if ((allowed[i] >> k & 1U) != 0 && key > kImpossible) mass += exp2f((v[k] - best) * scale);
    if (!sound) mass = NAN;
#pragma unroll
    for (int step = kQuads / 2; step > 0; step /= 2) mass += __shfl_xor_sync(kAllLanes, mass, step);
    const int group = (begin + 128 * i) / kListGroup;
    if (lane % kQuads == 0 && group < groups)
      a.groups[static_cast<int64_t>(row) * groups + group] = {key, mass};
  }
}

/// Sums and scans over a block of kListThreads, in an order that the threads' numbers decide.
struct BlockScratch {
  int counts[2][kListWarps];
  float masses[kListWarps];
};

/// How many of the threads' keys reach `bound`. `turn` alternates from call to call.
template <int kCount>
__device__ __forceinline__ int count_from(const uint32_t (&keys)[kCount], uint32_t bound, int turn,
                                          BlockScratch& scratch) {
  int own = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) own += keys[i] >= bound;
  own = __reduce_add_sync(kAllLanes, own);
  if (threadIdx.x % 32 == 0) scratch.counts[turn & 1][threadIdx.x / 32] = own;
  __syncthreads();
  return __reduce_add_sync(kAllLanes, scratch.counts[turn & 1][threadIdx.x % 32]);
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
  if (lane == 31) scratch.counts[0][threadIdx.x / 32] = inclusive;
  __syncthreads();
  const int of_warp = scratch.counts[0][lane];
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
  const float of_warp = scratch.masses[lane];
  *total = warp_sum(of_warp);
  return warp_sum(lane < static_cast<int>(threadIdx.x) / 32 ? of_warp : 0.0F) + exclusive;
}

/// The kListTokens largest keys above 0 of a block, of equal ones those of earlier threads and
/// places; all, if there are fewer.
template <int kCount>
struct Best {
  uint32_t bound;  // larger keys are among them
  int equal;       // and so many of those that are the bound, the first ones
  int first;       // rank by thread and place of the thread's first one
  int equal_before;
  int count;  // of all that are chosen

  __device__ Best(const uint32_t (&keys)[kCount], uint32_t highest, BlockScratch& scratch) {
    uint32_t low = 1;
    uint32_t high = max(highest, 1U);
    int turn = 0;
    int reached = count_from(keys, low, turn++, scratch);
    if (reached > kListTokens)
      while (low < high && reached != kListTokens) {
        const uint32_t middle = low + (high - low + 1) / 2;
        const int found = count_from(keys, middle, turn++, scratch);
        if (found >= kListTokens) {
          low = middle;
          reached = found;
        } else {
          high = middle - 1;
        }
      }
    bound = low;
    constexpr int kOne = 1 << 16;  // larger ones below, equal ones above
    int own = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) own += (keys[i] > low) + (keys[i] == low ? kOne : 0);
    int total = 0;
    const int before = counts_before(own, &total, scratch);
    equal = min(total / kOne, kListTokens - total % kOne);
    equal_before = before / kOne;
    first = before % kOne + min(equal_before, equal);
    count = total % kOne + equal;
  }

  /// Whether the next of the thread's keys is chosen; they are asked for in their order.
  __device__ __forceinline__ bool takes(uint32_t key) {
    return key > bound || (key == bound && equal_before++ < equal);
  }
};

struct ListScratch {
  BlockScratch block;
  uint32_t highest[kListWarps];
  int chosen[kListTokens];  // groups, ascending
  uint32_t keys[kListTokens];
  int ids[kListTokens];  // ascending
  int drawn;
  ShortListRow list;
};

/// Largest key of the row; the same in every thread.
__device__ __forceinline__ uint32_t highest_key(const uint32_t (&keys)[kThreadGroups],
                                                ListScratch& scratch) {
  uint32_t own = 0;
#pragma unroll
  for (int i = 0; i < kThreadGroups; ++i) own = max(own, keys[i]);
  own = __reduce_max_sync(kAllLanes, own);
  if (threadIdx.x % 32 == 0) scratch.highest[threadIdx.x / 32] = own;
  __syncthreads();
  return __reduce_max_sync(kAllLanes, scratch.highest[threadIdx.x % 32]);
}

/// Which group holds the draw: the last of some mass that begins at or below u of all.
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

/// The kThreadLogits logits of a thread among those of the chosen groups, and their keys.
template <bool kAligned>
struct ThreadLogits {
  uint32_t keys[kThreadLogits] = {};
  int first = 0;  // token

  __device__ ThreadLogits(const ShortListArgs& a, const float* logits, int groups,
                          const int* chosen) {
    const int place = threadIdx.x * kThreadLogits;
    if (place / kListGroup >= groups) return;
    first = chosen[place / kListGroup] * kListGroup + place % kListGroup;
    if (first >= a.vocab) return;
    const uint32_t allowed = a.sampleable[first / 32] >> (first % 32);
#pragma unroll
    for (int i = 0; i < kThreadLogits; i += 4) {
      const float4 x = four_logits<kAligned>(logits, first + i, a.vocab);
      const float v[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if ((allowed >> (i + k) & 1U) != 0) keys[i + k] = key_of(v[k]);
    }
  }
};

/// Writes the chosen tokens in order: eight threads find the rank of each.
__device__ __forceinline__ void write_best(int count, ListScratch& scratch) {
  constexpr int kShares = kListThreads / kListTokens;
  const int at = threadIdx.x / kShares;
  const uint32_t key = scratch.keys[at];
  int rank = 0;
  for (int j = threadIdx.x % kShares; j < count; j += kShares)
    rank += scratch.keys[j] > key || (scratch.keys[j] == key && j < at);
#pragma unroll
  for (int step = kShares / 2; step > 0; step /= 2) rank += __shfl_xor_sync(kAllLanes, rank, step);
  if (at >= count || threadIdx.x % kShares != 0) return;
  scratch.list.tokens[rank] = scratch.ids[at];
  scratch.list.logits[rank] = unordered(key);
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
  const uint32_t highest = highest_key(keys, scratch);
  const float best = unordered(highest);
#pragma unroll
  for (int i = 0; i < kThreadGroups; ++i)
    if (keys[i] > kImpossible) masses[i] *= exp2f((unordered(keys[i]) - best) * scale);

  Best<kThreadGroups> best_groups(keys, highest, scratch.block);
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
  write_draw(a, logits, a.draws[row].u, masses, scratch);

  const ThreadLogits<kAligned> own(a, logits, best_groups.count, scratch.chosen);
  Best<kThreadLogits> best_logits(own.keys, highest, scratch.block);
  place = best_logits.first;
#pragma unroll
  for (int i = 0; i < kThreadLogits; ++i) {
    sampleable += (own.keys[i] > 0) << 16;
    if (best_logits.takes(own.keys[i])) {
      scratch.keys[place] = own.keys[i];
      scratch.ids[place++] = own.first + i;
    } else if (own.keys[i] > kImpossible) {
      rest += exp2f((unordered(own.keys[i]) - best) * scale);
    }
  }
  float total_rest = 0.0F;
  mass_before(rest, &total_rest, scratch.block);
  int total_sampleable = 0;
  counts_before(sampleable, &total_sampleable, scratch.block);
  write_best(best_logits.count, scratch);
  if (threadIdx.x == 0) {
    const bool all_groups = (total_sampleable & 0xFFFF) == best_groups.count;
    scratch.list.rest = total_rest;
    scratch.list.count = best_logits.count;
    scratch.list.all = all_groups && total_sampleable >> 16 == best_logits.count ? 1 : 0;
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
