// This is the recurrence of delta_net.cu for heads of 128 x 128 on cards that copy in bulk (compute
// capability 9.0). A block walks heads of sequences; the next state is loaded into shared memory
// while one is in registers; two blocks share an SM. A warp owns 16 value columns whole, so sums
// over keys stay inside it. If there are few heads, they are split: a cluster of four blocks of two
// warps takes one, so that every SM works. A state is F32 or BF16 (T: float, uint16_t); a BF16 one
// is rounded after every row. Bound: the bytes of the state, read and written once.
#pragma once

#include "backend/cuda/ops/delta_net/delta_select.h"
#include "backend/cuda/ops/delta_net/state_elements.cuh"
#include "backend/cuda/ptx/barrier.cuh"
#include "backend/cuda/ptx/copy.cuh"
#include "backend/cuda/ptx/device_math.cuh"

namespace nibble::cuda {

inline constexpr int kStreamState = kStreamDim * kStreamDim;  // numbers of a state

template <typename T>
struct StreamShared {
  using Element = T;
  static constexpr bool kSplit = false;
  static constexpr int kStages = 4 / sizeof(T);  // states in shared memory: 64 KB
  alignas(128) T state[kStages][kStreamState];
  float q[kStreamWarps][kStreamDim];
  float k[kStreamWarps][kStreamDim];
  float squares[2][kStreamWarps];
  uint64_t full[kStages];
};
static_assert(sizeof(StreamShared<float>) == kStreamSharedBytes &&
              sizeof(StreamShared<uint16_t>) == kStreamSharedBytes);

inline constexpr int kSplitWarps = kStreamWarps / kSplitBlocks;
template <typename T>
struct SplitShared {
  using Element = T;
  static constexpr bool kSplit = true;
  float q[kSplitWarps][kStreamDim];
  float k[kSplitWarps][kStreamDim];
  float squares[2][kStreamWarps];  // of the whole cluster
};

template <typename T>
__device__ __forceinline__ void copy_state(T* to, const T* from, uint64_t* full) {
  constexpr int kBytes = kStreamState * sizeof(T);
  barrier_expect(shared_address(full), kBytes);
  copy_bulk(shared_address(to), from, kBytes, shared_address(full));
}
/// Initialises the barriers; it is itself a barrier for all threads of the block.
template <typename Shared>
__device__ __forceinline__ void start_copies(Shared& shared) {
  if (threadIdx.x == 0) {
    for (uint64_t& full : shared.full) barrier_init(shared_address(&full), 1);
    barrier_init_fence();
  }
  __syncthreads();
}

__device__ __forceinline__ float4 sum_over_keys(float4 v) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) {
    v.x += __shfl_xor_sync(kAllLanes, v.x, step);
    v.y += __shfl_xor_sync(kAllLanes, v.y, step);
    v.z += __shfl_xor_sync(kAllLanes, v.z, step);
    v.w += __shfl_xor_sync(kAllLanes, v.w, step);
  }
  return v;
}
__device__ __forceinline__ float4 scale_add(float a, const float4& x, const float4& y) {
  return make_float4(fmaf(a, x.x, y.x), fmaf(a, x.y, y.y), fmaf(a, x.z, y.z), fmaf(a, x.w, y.w));
}

/// computed: a row has an output. replayed: it moves the state and nothing else.
enum class RowUse : uint8_t { computed, replayed };

/// The values of one row that a thread reads for one head.
struct StreamRow {
  float4 q, k;  // elements 4 lane ..
  float4 v;     // of the warp's columns 4 (lane % 4) ..
  float a, b, z;
};

/// Thread (warp, lane): keys lane / 4 + 8 i, value columns 16 warp + 4 (lane % 4) + c; `warp`
/// counts over the cluster where one shares the head (Shared::kSplit).
template <typename Shared>
class StreamHead {
 public:
  using T = typename Shared::Element;
  static constexpr bool kSplit = Shared::kSplit;

  __device__ __forceinline__ StreamHead(const DeltaNetArgs& a, Shared& shared, int v_head)
      : a_(a), shared_(shared), v_head_(v_head), local_(threadIdx.x / 32), lane_(threadIdx.x % 32) {
    warp_ = local_ + (kSplit ? rank_in_cluster() * kSplitWarps : 0);
    column_ = 16 * warp_ + 4 * (lane_ % 4);
    decay_ = a.decay[v_head];
    dt_bias_ = a.dt_bias[v_head];
    if constexpr (kSplit) {
      k_head_ = v_head / (a.v_heads / a.k_heads);
      norm_ = a.norm[own_column()];
    }
  }
  /// The columns whose output this thread writes; the keys' lanes share them.
  __device__ __forceinline__ int own_column() const { return column_ + lane_ / 4 % 4; }

  __device__ __forceinline__ StreamRow load_row(int row) const {
    const float* qkv = a_.convolved + static_cast<int64_t>(row) * a_.qkv_rows();
    const int k_head = kSplit ? k_head_ : v_head_ / (a_.v_heads / a_.k_heads);
    StreamRow r = load_gates(row);
    r.q = *reinterpret_cast<const float4*>(qkv + k_head * kStreamDim + 4 * lane_);
    r.k = *reinterpret_cast<const float4*>(qkv + (a_.k_heads + k_head) * kStreamDim + 4 * lane_);
    r.v = *reinterpret_cast<const float4*>(qkv + (2 * a_.k_heads + v_head_) * kStreamDim + column_);
    return r;
  }
  /// Loads row `index` of those that a sequence replays.
  __device__ __forceinline__ StreamRow load_replayed(int sequence, int index) const {
    const float* saved = a_.replayed + (static_cast<int64_t>(sequence) * a_.replay_rows + index) *
                                           a_.saved_numbers();
    const int k_head = kSplit ? k_head_ : v_head_ / (a_.v_heads / a_.k_heads);
    StreamRow r;
    r.a = saved[a_.qkv_rows() + v_head_];
    r.b = saved[a_.qkv_rows() + a_.v_heads + v_head_];
    r.z = 0.0F;
    r.q = *reinterpret_cast<const float4*>(saved + k_head * kStreamDim + 4 * lane_);
    r.k = *reinterpret_cast<const float4*>(saved + (a_.k_heads + k_head) * kStreamDim + 4 * lane_);
    r.v = *reinterpret_cast<const float4*>(saved + (2 * a_.k_heads + v_head_) * kStreamDim +
                                           column_);
    return r;
  }
  /// Applies the saved inputs of a sequence to the state, which is rounded after each.
  __device__ __forceinline__ void replay(int sequence) {
    const int count = a_.batch.replay[sequence];
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      advance<RowUse::replayed>(load_replayed(sequence, i), 0, 0);
      round_state();
    }
  }
  /// Loads the rest of a row, where the block convolves itself.
  __device__ __forceinline__ StreamRow load_gates(int row) const {
    StreamRow r;
    r.a = a_.a[row * a_.gate_stride + v_head_];
    r.b = a_.b[row * a_.gate_stride + v_head_];
    r.z = a_.z[(static_cast<int64_t>(row) * a_.v_heads + v_head_) * kStreamDim + own_column()];
    return r;
  }
  /// `convolved`: q, k and the block's value heads, of which this is number `head`.
  __device__ __forceinline__ void take_convolved(const float* convolved, int head,
                                                 StreamRow& r) const {
    r.q = *reinterpret_cast<const float4*>(convolved + 4 * lane_);
    r.k = *reinterpret_cast<const float4*>(convolved + kStreamDim + 4 * lane_);
    r.v = *reinterpret_cast<const float4*>(convolved + (2 + head) * kStreamDim + column_);
  }
  __device__ __forceinline__ void take_state(const T* from) {
#pragma unroll
    for (int i = 0; i < 16; ++i)
      s_[i] = load_four(from + (lane_ / 4 + 8 * i) * kStreamDim + column_);
  }
  __device__ __forceinline__ void store_state(T* to) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) store_four(to + (lane_ / 4 + 8 * i) * kStreamDim + column_, s_[i]);
  }
  /// Rounds the state, from which the next row of the same pass starts.
  __device__ __forceinline__ void round_state() {
#pragma unroll
    for (int i = 0; i < 16; ++i)
      s_[i] = make_float4(kept<T>(s_[i].x), kept<T>(s_[i].y), kept<T>(s_[i].z), kept<T>(s_[i].w));
  }
  template <RowUse kUse = RowUse::computed>
  __device__ __forceinline__ void advance(const StreamRow& in, int row, int buffer) {
    share_q_k(in);
    const float beta = sigmoid(in.b);
    const float pre = in.a + dt_bias_;
    const float step = pre > 20.0F ? pre : log1pf(expf(pre));
    const float alpha = expf(-decay_ * step);
    const float z = kSplit ? silu(in.z) : in.z;
    const float* k = shared_.k[local_] + lane_ / 4;
    const float* q = shared_.q[local_] + lane_ / 4;
    float4 found = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      s_[i].x *= alpha, s_[i].y *= alpha, s_[i].z *= alpha, s_[i].w *= alpha;
      found = scale_add(k[8 * i], s_[i], found);
    }
    found = sum_over_keys(found);
    const float4 update = make_float4(beta * (in.v.x - found.x), beta * (in.v.y - found.y),
                                      beta * (in.v.z - found.z), beta * (in.v.w - found.w));
    float4 out = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      s_[i] = scale_add(k[8 * i], update, s_[i]);
      if constexpr (kUse == RowUse::computed) out = scale_add(q[8 * i], s_[i], out);
    }
    if constexpr (kUse == RowUse::replayed) return;
    write_out(sum_over_keys(out), z, row, buffer);
  }

 private:
  /// Writes q at unit length (times 1 / sqrt(k_dim)) and k at unit length to shared memory, a copy
  /// for each warp.
  __device__ __forceinline__ void share_q_k(const StreamRow& in) const {
    const float of_q =
        rsqrtf(warp_sum(sum_of_squares(in.q)) + 1e-6F) * rsqrtf(static_cast<float>(kStreamDim));
    const float of_k = rsqrtf(warp_sum(sum_of_squares(in.k)) + 1e-6F);
    __syncwarp();
    reinterpret_cast<float4*>(shared_.q[local_])[lane_] =
        make_float4(in.q.x * of_q, in.q.y * of_q, in.q.z * of_q, in.q.w * of_q);
    reinterpret_cast<float4*>(shared_.k[local_])[lane_] =
        make_float4(in.k.x * of_k, in.k.y * of_k, in.k.z * of_k, in.k.w * of_k);
    __syncwarp();
  }
  /// Writes norm(o) * silu(z), where with kSplit z is silu(z) already. It has the only barrier of a
  /// row.
  __device__ __forceinline__ void write_out(const float4& o, float z, int row, int buffer) const {
    const float squares = quad_sum(sum_of_squares(o));
    if constexpr (kSplit) {
      if (lane_ < kSplitBlocks)
        store_in_cluster(&shared_.squares[buffer][warp_], lane_,
                         __float_as_uint(__shfl_sync(0xFU, squares, 0)));
      arrive_at_cluster();
      wait_for_cluster();
    } else {
      if (lane_ == 0) shared_.squares[buffer][warp_] = squares;
      __syncthreads();
    }
    if (lane_ >= 16) return;
    float total = 0.0F;
#pragma unroll
    for (int w = 0; w < kStreamWarps; ++w) total += shared_.squares[buffer][w];
    const float scale = rsqrtf(total / static_cast<float>(kStreamDim) + a_.eps);
    const int c = lane_ / 4;
    const float own = c == 0 ? o.x : c == 1 ? o.y : c == 2 ? o.z : o.w;
    const int at = v_head_ * kStreamDim + own_column();
    a_.out[row * a_.out_stride + x_place(at)] =
        to_bf16(own * scale * (kSplit ? norm_ : a_.norm[own_column()]) * (kSplit ? z : silu(z)));
  }

  const DeltaNetArgs& a_;
  Shared& shared_;
  int v_head_, local_, lane_, warp_, column_;
  float decay_, dt_bias_;
  // Known before the wait where registers are plenty, kSplit.
  int k_head_ = 0;
  float norm_ = 0.0F;  // of own_column()
  float4 s_[16];
};

/// Items are (sequence, value head), a block's own ones gridDim.x apart.
template <typename T, bool kReplays>
__global__ void __launch_bounds__(kStreamThreads, kStreamBlocks)
    recurrence_stream_kernel(const __grid_constant__ DeltaNetArgs a) {
#if __CUDA_ARCH__ >= 900
  touch(a);
  extern __shared__ __align__(128) uint8_t memory[];
  using Shared = StreamShared<T>;
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int items = a.v_heads * a.batch.sequences;
  const auto state_of = [&](int item, int64_t slot) {
    return state_at<T>(a.state, slot, static_cast<int64_t>(item % a.v_heads) * kStreamState);
  };
  const auto load = [&](int item, int stage) {
    if (threadIdx.x == 0 && item < items)
      copy_state(shared.state[stage], state_of(item, a.batch.state_in[item / a.v_heads]),
                 &shared.full[stage]);
  };
  start_copies(shared);
  // The states were written by the pass before at the latest, so they are read ahead of the inputs.
#pragma unroll
  for (int stage = 0; stage < Shared::kStages; ++stage) load(blockIdx.x + stage * gridDim.x, stage);
  wait_for_inputs();
  int stage = 0;
  uint32_t parity = 0;
  int buffer = 0;
#pragma unroll 1
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    const int sequence = item / a.v_heads;
    const int rows = a.batch.row_count[sequence];
    const int first = a.batch.row_begin[sequence];
    StreamHead<Shared> head(a, shared, item % a.v_heads);
    StreamRow in = head.load_row(first);
    barrier_wait(shared_address(&shared.full[stage]), parity);
    head.take_state(shared.state[stage]);
    __syncthreads();
    load(item + Shared::kStages * gridDim.x, stage);
    if constexpr (kReplays) {
      if (rows > 0) head.replay(sequence);
      if (a.batch.drafted[sequence] != 0)
        head.store_state(state_of(item, a.batch.state_out[sequence]));
    }
#pragma unroll 1
    for (int row = first; row < first + rows; ++row) {
      if (row > first) {
        in = head.load_row(row);
        head.round_state();
      }
      head.advance(in, row, buffer);
      buffer ^= 1;
      const int snapshot = a.batch.snapshot_slot[row];
      if (snapshot >= 0) head.store_state(state_of(item, snapshot));
    }
    const bool drafted = kReplays && a.batch.drafted[sequence] != 0;
    if (rows > 0 && !drafted) head.store_state(state_of(item, a.batch.state_out[sequence]));
    if (++stage == Shared::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
#endif
}

/// A cluster has one head of one sequence and loads its state straight from memory into registers.
template <typename T, bool kReplays>
__global__ void __launch_bounds__(kSplitWarps * 32)
    recurrence_split_kernel(const __grid_constant__ DeltaNetArgs a) {
#if __CUDA_ARCH__ >= 900
  touch(a);
  __shared__ SplitShared<T> shared;
  const int item = blockIdx.x / kSplitBlocks;
  const int sequence = item / a.v_heads;
  const int v_head = item - sequence * a.v_heads;
  const auto state_of = [&](int64_t slot) {
    return state_at<T>(a.state, slot, static_cast<int64_t>(v_head) * kStreamState);
  };
  StreamHead<SplitShared<T>> head(a, shared, v_head);
  // The state was written by the pass before at the latest, so it is read ahead of the inputs.
  const int rows = a.batch.row_count[sequence];
  const int first = a.batch.row_begin[sequence];
  int snapshot = rows > 0 ? a.batch.snapshot_slot[first] : -1;
  const int64_t last = rows > 0 ? a.batch.state_out[sequence] : 0;
  if (rows > 0) head.take_state(state_of(a.batch.state_in[sequence]));
  arrive_at_cluster();  // all four run before one writes to another
  wait_for_cluster();
  wait_for_inputs();
  const bool drafted = kReplays && a.batch.drafted[sequence] != 0;
  if constexpr (kReplays) {
    if (rows > 0) head.replay(sequence);
    if (drafted) head.store_state(state_of(last));
  }
#pragma unroll 1
  for (int row = first; row < first + rows; ++row) {
    if (row > first) head.round_state();
    head.advance(head.load_row(row), row, (row - first) % 2);
    if (snapshot >= 0) head.store_state(state_of(snapshot));
    if (row + 1 < first + rows) snapshot = a.batch.snapshot_slot[row + 1];
  }
  if (rows > 0 && !drafted) head.store_state(state_of(last));
#endif
}

}  // namespace nibble::cuda
