// This file cuts the histories of a launch of generation attention into KV splits. Their length
// depends on a row's position alone. A block takes adjacent splits, so that its queries seldom
// change.
#pragma once

#include "backend/cuda/ops/attention/attention_row.cuh"
#include "backend/cuda/ops/attention/attention_select.h"

namespace nibble::cuda {

static_assert(kAttendRowsMax == 64, "a lane keeps two rows of a launch");
static_assert(kAttendTokensMin % kPage == 0);

/// The rows of a launch and how their heads are shared out.
struct AttendLaunch {
  int32_t row_begin = 0;
  int32_t rows = 0;
  int32_t group = 0;   // query heads of a KV head
  int32_t passes = 0;  // over the keys of a KV head, kAttendHeads at a time
  /// The rows' own tokens are not in their pages yet. With several rows of a sequence they are
  /// stored first, since a row's history ends in tokens of the same pass.
  bool fresh = false;
};

/// A history of `tokens` in at most kAttendSplitsMax splits: their length, and how many.
__device__ __forceinline__ int split_units(int tokens) {
  return (tokens + kAttendTokensMin * kAttendSplitsMax - 1) / (kAttendTokensMin * kAttendSplitsMax);
}
__device__ __forceinline__ int split_count(int tokens) {
  const int all = (tokens + kAttendTokensMin - 1) / kAttendTokensMin;
  const int units = split_units(tokens);
  return units <= 1 ? all : (all + units - 1) / units;
}

/// The result of a split for one head: F16 numbers that are means of values, then what their
/// weights are relative to and the sum of the weights, in F32. F16 holds a mean four times as
/// finely as the BF16 that becomes of the sum; beyond 65,504 it is infinite.
__device__ __forceinline__ uint8_t* partial_at(const AttentionArgs& a, int row, int head,
                                               int split) {
  return a.partial + ((static_cast<int64_t>(row) * a.q_heads + head) * a.splits_max + split) *
                         attend_partial_bytes(a.head_dim);
}
__device__ __forceinline__ float2* partial_weights(const AttentionArgs& a, uint8_t* partial) {
  return reinterpret_cast<float2*>(partial + attend_partial_bytes(a.head_dim) - 16);
}

/// One split of one row for up to kAttendHeads query heads of one KV head.
struct KvSplit {
  int row = 0;  // of the launch
  int kv_head = 0;
  int first_head = 0;
  int heads = 0;
  int index = 0;
  int begin = 0, end = 0;  // tokens
  int page_at = 0;         // of the first token, in the batch's pages
  bool last = false;       // of the row
};

/// The state of a warp while it walks the tokens of a split.
struct Walk {
  int begin = 0, end = 0;  // none: past the last split
  int own = INT_MAX;       // the row's own token, if it is not in its page yet
  int kv_head = 0;
  int page_at = 0;
  int ids = 0;  // lane l: page l of the window of 32 that is in work
};

/// The splits of a launch, numbered row by row, pass by pass.
struct SplitTable {
  int tokens[kAttendRowsMax];
  int before[kAttendRowsMax];  // splits of the rows before
  int page_begin[kAttendRowsMax];
  int total;

  /// By one warp; lane r makes rows r and 32 + r.
  __device__ __forceinline__ void fill(const AttentionArgs& a, const AttendLaunch& launch) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int own[2], page[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int row = 32 * k + lane;
      own[k] = row < launch.rows ? a.batch.kv_index[launch.row_begin + row] + 1 : 0;
      page[k] = row < launch.rows ? a.batch.page_begin[launch.row_begin + row] : 0;
    }
    int sum_before = 0;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int splits = split_count(own[k]) * launch.passes * a.kv_heads;
      int sum = splits;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int below = __shfl_up_sync(kAllLanes, sum, step);
        if (lane >= step) sum += below;
      }
      tokens[32 * k + lane] = own[k];
      page_begin[32 * k + lane] = page[k];
      before[32 * k + lane] = sum_before + sum - splits;
      sum_before += __shfl_sync(kAllLanes, sum, 31);
    }
    if (lane == 0) total = sum_before;
  }

  /// The first split of this block, and the first of the next.
  __device__ __forceinline__ int2 range() const {
    const auto blocks = static_cast<int>(gridDim.x);
    const auto block = static_cast<int>(blockIdx.x);
    const int each = total < blocks ? 0 : total / blocks;
    const int more = total - each * blocks;
    return make_int2(block * each + min(block, more), (block + 1) * each + min(block + 1, more));
  }

  __device__ __forceinline__ KvSplit at(const AttendLaunch& launch, int number) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    KvSplit split;
    split.row = __popc(__ballot_sync(kAllLanes, before[lane] <= number)) +
                __popc(__ballot_sync(kAllLanes, before[32 + lane] <= number)) - 1;
    const int history = tokens[split.row];
    const int splits = split_count(history);
    int pass = 0;
    split.index = number - before[split.row];
    while (split.index >= splits) split.index -= splits, ++pass;
    while (pass >= launch.passes) pass -= launch.passes, ++split.kv_head;
    split.first_head = split.kv_head * launch.group + pass * kAttendHeads;
    split.heads = min(kAttendHeads, launch.group - pass * kAttendHeads);
    split.last = split.index + 1 == splits;
    const int length = split_units(history) * kAttendTokensMin;
    split.begin = split.index * length;
    split.end = min(split.begin + length, history);
    split.page_at = page_begin[split.row] + split.begin / kPage;
    return split;
  }
};

/// Lane l: page `first` + l of what a walk covers.
__device__ __forceinline__ void read_ids(const AttentionArgs& a, int first, Walk& walk) {
  const int mine = first + static_cast<int>(threadIdx.x) % 32;
  if (walk.begin + mine * kPage < walk.end) walk.ids = a.batch.pages[walk.page_at + mine];
}
__device__ __forceinline__ Walk walk_of(const AttentionArgs& a, const AttendLaunch& launch,
                                        const KvSplit& split) {
  Walk walk{.begin = split.begin,
            .end = split.end,
            .own = launch.fresh && split.last ? split.end - 1 : INT_MAX,
            .kv_head = split.kv_head,
            .page_at = split.page_at};
  read_ids(a, 0, walk);
  return walk;
}
/// Returns the byte at which the page of token `first`, the first of a step, begins in the pool.
__device__ __forceinline__ int64_t page_of(const AttentionArgs& a, Walk& walk, int first) {
  const int page = (first - walk.begin) / kPage;
  if (page >= 32 && page % 32 < 2) read_ids(a, page / 32 * 32, walk);  // a warp may pass one over
  const int64_t id = __shfl_sync(kAllLanes, walk.ids, page % 32);
  return id * a.kv.page_stride;
}

}  // namespace nibble::cuda
