// One thread block has a row in all of these, but for the search of a draft, where several share a
// row and meet in an atomic maximum: it has no order.
#include "backend/cuda/ops/draft/draft.h"
#include "backend/cuda/ops/embed/embedding_row.cuh"
#include "backend/cuda/ops/norm/norm.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kCopyThreads = 256;
constexpr int kSearchThreads = 256;
constexpr int kSearchBlocks = 32;  // that share a row of logits
constexpr uint64_t kNotFinite = ~uint64_t{0};

__device__ __forceinline__ bool finite(float x) { return fabsf(x) < INFINITY; }

/// The hidden row of the token before the first row of a pass.
__device__ __forceinline__ float* slot_hidden(const HiddenView& slots, int64_t slot, int replay) {
  return replay == 0 ? slots.last + slot * slots.slot_stride
                     : slots.saved + slot * slots.slot_stride + (replay - 1) * slots.saved_stride;
}

__device__ __forceinline__ const float* hidden_before(const JoinArgs& a, int row) {
  if (a.before != nullptr) return a.before + static_cast<int64_t>(row) * a.hidden;
  const int sequence = a.batch.sequence_of[row];
  if (row > a.batch.row_begin[sequence]) return a.pass + static_cast<int64_t>(row - 1) * a.hidden;
  return slot_hidden(a.slots, a.batch.state_in[sequence], a.batch.replay[sequence]);
}

template <int kWidth>
__device__ __forceinline__ bool sound(const RowPart<kWidth>& part) {
  bool all = true;
#pragma unroll
  for (int g = 0; g < RowPart<kWidth>::kGroups; ++g)
#pragma unroll
    for (int i = 0; i < kWidth; ++i) all = all && finite(part.v[g][i]);
  return all;
}

template <int kWidth>
__global__ void __launch_bounds__(kNormThreads) join_kernel(const __grid_constant__ JoinArgs a) {
  __shared__ NormScratch<kWidth> scratch;
  wait_for_inputs();
  const auto row = static_cast<int>(blockIdx.x);
  if (a.batch.kv_index[row] < 0) return;
  const int64_t token = a.batch.tokens[row];
  RowPart<kWidth> embedding = {};
  RowPart<kWidth> hidden = load_part<kWidth>(hidden_before(a, row), a.hidden);
#pragma unroll
  for (int g = 0; g < RowPart<kWidth>::kGroups; ++g) {
    const int column = RowPart<kWidth>::column(g);
    if (column >= a.hidden) continue;
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      embedding.v[g][i] = input_number(a.table, a.batch, token, column + i, a.hidden);
  }
  const bool good = __syncthreads_and(sound(embedding) && sound(hidden)) != 0;
  if (!good && a.before == nullptr) embedding = hidden = {};
  const InputOrder order = row < a.packed_from ? InputOrder::placed : InputOrder::packed;
  uint16_t* x = a.joined + row * a.joined_stride;
  norm_row(embedding, a.hidden, load_part<kWidth>(a.embedding_norm, a.hidden), a.eps, order, x,
           nullptr, scratch);
  __syncthreads();
  norm_row(hidden, a.hidden, load_part<kWidth>(a.hidden_norm, a.hidden), a.eps, order, x, nullptr,
           scratch, a.hidden);
}

/// Copies a hidden row, or zeros where it is not finite, by all threads of a block.
__device__ __forceinline__ void keep_row(const float* from, int width, float* to) {
  bool all = true;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kCopyThreads)
    all = all && finite(from[i]);
  const bool good = __syncthreads_and(all) != 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kCopyThreads)
    to[i] = good ? from[i] : 0.0F;
}

__global__ void __launch_bounds__(kCopyThreads)
    keep_hidden_kernel(const __grid_constant__ KeepHiddenArgs a) {
  wait_for_inputs();
  const auto row = static_cast<int>(blockIdx.x);
  if (a.batch.kv_index[row] < 0) return;
  const auto row_at = [&](int i) { return a.pass + static_cast<int64_t>(i) * a.hidden; };
  const int snapshot = a.batch.snapshot_slot[row];
  if (snapshot >= 0) keep_row(row_at(row), a.hidden, slot_hidden(a.slots, snapshot, 0));
  const int sequence = a.batch.sequence_of[row];
  const int first = a.batch.row_begin[sequence];
  const int count = a.batch.row_count[sequence];
  if (row != first + count - 1) return;
  const int64_t slot = a.batch.state_out[sequence];
  if (a.batch.drafted[sequence] == 0)
    return keep_row(row_at(row), a.hidden, slot_hidden(a.slots, slot, 0));
  // Before the saved ones are overwritten: it may be one of them.
  keep_row(slot_hidden(a.slots, a.batch.state_in[sequence], a.batch.replay[sequence]), a.hidden,
           slot_hidden(a.slots, slot, 0));
  __syncthreads();
  for (int i = 0; i < count; ++i)
    keep_row(row_at(first + i), a.hidden, slot_hidden(a.slots, slot, i + 1));
}

/// A number that orders as (logit, smaller token first); of no finite logit 0 or kNotFinite.
__device__ __forceinline__ uint64_t draft_key(float logit, int token) {
  if (!finite(logit)) return kNotFinite;
  const uint32_t bits = __float_as_uint(logit + 0.0F);  // -0 becomes 0
  const uint32_t ordered = bits & 0x80000000U ? ~bits : bits | 0x80000000U;
  return static_cast<uint64_t>(ordered) << 32 | (~static_cast<uint32_t>(token));
}
__device__ __forceinline__ int token_of(uint64_t key) {
  if (key == 0 || key == kNotFinite) return -1;
  return static_cast<int>(~static_cast<uint32_t>(key));
}

__global__ void __launch_bounds__(kSearchThreads)
    search_draft_kernel(const __grid_constant__ TakeDraftArgs a) {
  wait_for_inputs();
  const auto row = static_cast<int>(blockIdx.y);
  if (a.rows.kv_index[row] < 0) return;
  const float* logits = a.logits + static_cast<int64_t>(row) * a.vocab;
  uint64_t best = 0;
  const int step = kSearchBlocks * kSearchThreads;
  for (int i = static_cast<int>(blockIdx.x * kSearchThreads + threadIdx.x); i < a.vocab;
       i += step) {
    const int token = a.tokens == nullptr ? i : a.tokens[i];
    if (a.sampleable != nullptr && (a.sampleable[token / 32] >> (token % 32) & 1U) == 0) continue;
    best = max(best, draft_key(logits[i], token));
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    best = max(best, __shfl_xor_sync(kAllLanes, best, lanes));
  if (threadIdx.x % 32 == 0)
    atomicMax(reinterpret_cast<unsigned long long*>(a.rows.best + row),
              static_cast<unsigned long long>(best));
}

__global__ void __launch_bounds__(kCopyThreads)
    take_draft_kernel(const __grid_constant__ TakeDraftArgs a) {
  wait_for_inputs();
  const auto row = static_cast<int>(blockIdx.x);
  const DraftRows& r = a.rows;
  if (r.kv_index[row] < 0) return;
  const int64_t at = static_cast<int64_t>(row) * a.hidden_width;
  for (int i = static_cast<int>(threadIdx.x); i < a.hidden_width; i += kCopyThreads)
    a.before[at + i] = a.hidden[at + i];
  __syncthreads();  // all have read kv_index
  if (threadIdx.x != 0) return;
  const int done = r.done[row];
  int32_t* out = r.out + row * kDraftsMost;
  const bool ended = done > 0 && out[done - 1] < 0;
  const int token = ended ? -1 : token_of(r.best[row]);
  r.best[row] = 0;
  out[done] = token;
  r.done[row] = done + 1;
  r.tokens[row] = max(token, 0);
  r.kv_index[row] = done + 1 < r.count[row] ? r.kv_index[row] + 1 : -1;
  for (int axis = 0; axis < 3; ++axis)
    r.positions[axis * r.rows + row] = r.next_position[row] + done;
}

__global__ void __launch_bounds__(kCopyThreads)
    begin_draft_kernel(const __grid_constant__ BeginDraftArgs a) {
  wait_for_inputs();
  const auto row = static_cast<int>(blockIdx.x);
  const DraftRows& r = a.rows;
  if (threadIdx.x < kDraftsMost) r.out[row * kDraftsMost + static_cast<int>(threadIdx.x)] = -1;
  if (threadIdx.x == 0) r.done[row] = 0, r.best[row] = 0;
  if (r.kv_index[row] < 0) return;
  const float* from = slot_hidden(a.slots, a.batch.state_in[row], a.batch.replay[row]);
  for (int i = static_cast<int>(threadIdx.x); i < a.hidden; i += kCopyThreads)
    a.before[static_cast<int64_t>(row) * a.hidden + i] = from[i];
}

}  // namespace

void join_rows(const JoinArgs& args, const Launcher& launcher) {
  launch(args.hidden % 4 == 0 ? join_kernel<4> : join_kernel<1>, launcher,
         static_cast<unsigned>(args.batch.rows), kNormThreads, 0, args);
}

void keep_hidden(const KeepHiddenArgs& args, const Launcher& launcher) {
  launch(keep_hidden_kernel, launcher, static_cast<unsigned>(args.batch.rows), kCopyThreads, 0,
         args);
}

void take_draft(const TakeDraftArgs& args, const Launcher& launcher) {
  const auto rows = static_cast<unsigned>(args.rows.rows);
  launch(search_draft_kernel, launcher, dim3(kSearchBlocks, rows), kSearchThreads, 0, args);
  launch(take_draft_kernel, launcher, rows, kCopyThreads, 0, args);
}

void begin_draft(const BeginDraftArgs& args, const Launcher& launcher) {
  launch(begin_draft_kernel, launcher, static_cast<unsigned>(args.rows.rows), kCopyThreads, 0,
         args);
}

}  // namespace nibble::cuda
