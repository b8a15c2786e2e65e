// recurrence_stream.cuh with the convolution before it, for one row of each sequence: a block takes
// the value heads of one key head, one after another, convolves their channels into shared memory
// and writes what the next row needs, which nobody else reads. The sums are those of
// convolve_kernel of delta_net.cu. Bound: the bytes of the state, read and written once.
#pragma once

#include "backend/cuda/ops/delta_net/recurrence_stream.cuh"

namespace nibble::cuda {

/// A unit is a (sequence, key head) of a block. Whatever each one would wait for is read once, for
/// all.
struct StreamUnit {
  int k_head;
  int row;  // -1: a row of padding
  int state_in, state_out, snapshot;
};

template <typename T>
struct ConvolveShared : StreamShared<T> {
  float convolved[channel_parts(kFusedHeadsMax) * kStreamThreads];
  StreamUnit units[kUnitsMax];
};
static_assert(sizeof(ConvolveShared<float>) == kConvolveSharedBytes &&
              sizeof(ConvolveShared<uint16_t>) == kConvolveSharedBytes);

/// StreamChannels has a thread's channels of one unit; they are loaded early and convolved late.
template <int kParts>
class StreamChannels {
 public:
  __device__ __forceinline__ explicit StreamChannels(const DeltaNetArgs& a)
      : a_(a), heads_(a.v_heads / a.k_heads) {}

  /// Loads the inputs that the pass before left, and the weights.
  __device__ __forceinline__ void load_past(const StreamUnit& unit) {
    const float* in = a_.state.conv + unit.state_in * a_.state.slot_stride;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (!has(i)) continue;
      const int channel = channel_of(i, unit.k_head);
      weights_[i] = reinterpret_cast<const float4*>(a_.conv)[channel];
#pragma unroll
      for (int j = 0; j < kPast; ++j)
        past_[i][j] = in[static_cast<int64_t>(j) * a_.qkv_rows() + channel];
    }
  }
  __device__ __forceinline__ void load_row(const StreamUnit& unit) {
    const float* x = a_.qkv + static_cast<int64_t>(max(unit.row, 0)) * a_.qkv_rows();
#pragma unroll
    for (int i = 0; i < kParts; ++i)
      if (has(i)) x_[i] = x[channel_of(i, unit.k_head)];
  }
  /// Writes results to `to` [2 + heads][kStreamDim], and the inputs of the next row to up to two
  /// slots.
  __device__ __forceinline__ void convolve(const StreamUnit& unit, float* to) const {
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (!has(i)) continue;
      float sum = fmaf(weights_[i].x, past_[i][0], 0.0F);
      sum = fmaf(weights_[i].y, past_[i][1], sum);
      sum = fmaf(weights_[i].z, past_[i][2], sum);
      to[threadIdx.x + i * kStreamThreads] = silu(fmaf(weights_[i].w, x_[i], sum));
      const int channel = channel_of(i, unit.k_head);
      for (const int64_t slot : {unit.snapshot, unit.state_out}) {
        if (slot < 0) continue;
        float* next = a_.state.conv + slot * a_.state.slot_stride + channel;
#pragma unroll
        for (int j = 0; j < kPast; ++j)
          next[static_cast<int64_t>(j) * a_.qkv_rows()] = j + 1 < kPast ? past_[i][j + 1] : x_[i];
      }
    }
  }

 private:
  static constexpr int kPast = kFusedTaps - 1;
  __device__ __forceinline__ bool has(int i) const {
    return static_cast<int>(threadIdx.x) + i * kStreamThreads < (2 + heads_) * kStreamDim;
  }
  __device__ __forceinline__ int channel_of(int i, int k_head) const {
    const int local = static_cast<int>(threadIdx.x) + i * kStreamThreads;
    const int head = local / kStreamDim;
    const int first = head == 0   ? k_head
                      : head == 1 ? a_.k_heads + k_head
                                  : 2 * a_.k_heads + k_head * heads_ + head - 2;
    return first * kStreamDim + local % kStreamDim;
  }

  const DeltaNetArgs& a_;
  int heads_;
  float4 weights_[kParts];
  float past_[kParts][kPast];
  float x_[kParts];
};

/// Units are (sequence, key head), a block's own ones gridDim.x apart.
template <typename T, int kParts>
__global__ void __launch_bounds__(kStreamThreads, kStreamBlocks)
    recurrence_convolve_kernel(const __grid_constant__ DeltaNetArgs a) {
#if __CUDA_ARCH__ >= 900
  touch(a);
  extern __shared__ __align__(128) uint8_t memory[];
  using Shared = ConvolveShared<T>;
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int heads = a.v_heads / a.k_heads;
  const int units = a.k_heads * a.batch.sequences;
  const int first = blockIdx.x;
  const auto stride = static_cast<int>(gridDim.x);
  if (threadIdx.x < kUnitsMax && first + static_cast<int>(threadIdx.x) * stride < units) {
    const int unit = first + static_cast<int>(threadIdx.x) * stride;
    const int sequence = unit / a.k_heads;
    const int row = a.batch.row_begin[sequence];
    shared.units[threadIdx.x] = {.k_head = unit - sequence * a.k_heads,
                                 .row = a.batch.row_count[sequence] > 0 ? row : -1,
                                 .state_in = a.batch.state_in[sequence],
                                 .state_out = a.batch.state_out[sequence],
                                 .snapshot = a.batch.snapshot_slot[row]};
  }
  start_copies(shared);
  const auto state_of = [&](int v_head, int64_t slot) {
    return state_at<T>(a.state, slot, static_cast<int64_t>(v_head) * kStreamState);
  };
  const auto load = [&](const StreamUnit& unit, int head, int stage) {
    if (threadIdx.x == 0)
      copy_state(shared.state[stage], state_of(unit.k_head * heads + head, unit.state_in),
                 &shared.full[stage]);
  };
  // Loads value head `head`, counted from the first of unit n.
  const auto load_later = [&](int n, int head, int stage) {
    for (; head >= heads; head -= heads) ++n;
    if (first + n * stride < units) load(shared.units[n], head, stage);
  };
  // The states were written by the pass before at the latest, so they are read ahead of the inputs.
  StreamChannels<kParts> channels(a);
#pragma unroll
  for (int stage = 0; stage < Shared::kStages; ++stage) load_later(0, stage, stage);
  if (first < units) channels.load_past(shared.units[0]);
  wait_for_inputs();
  if (first < units) channels.load_row(shared.units[0]);
  int stage = 0;
  uint32_t parity = 0;
  int buffer = 0;
#pragma unroll 1
  for (int n = 0; first + n * stride < units; ++n) {
    const StreamUnit& unit = shared.units[n];
    if (unit.row >= 0) channels.convolve(unit, shared.convolved);
#pragma unroll 1
    for (int j = 0; j < heads; ++j) {
      const int v_head = unit.k_head * heads + j;
      StreamHead<Shared> head(a, shared, v_head);
      StreamRow in = head.load_gates(max(unit.row, 0));
      barrier_wait(shared_address(&shared.full[stage]), parity);
      head.take_state(shared.state[stage]);
      __syncthreads();
      if (j + Shared::kStages < heads) {
        load(unit, j + Shared::kStages, stage);
      } else {
        load_later(n + 1, j + Shared::kStages - heads, stage);
      }
      if (j + 1 >= heads && first + (n + 1) * stride < units) {
        channels.load_past(shared.units[n + 1]);
        channels.load_row(shared.units[n + 1]);
      }
      if (++stage == Shared::kStages) {
        stage = 0;
        parity ^= 1;
      }
      if (unit.row < 0) continue;
      head.take_convolved(shared.convolved, j, in);
      head.advance(in, unit.row, buffer);
      buffer ^= 1;
      if (unit.snapshot >= 0) head.store_state(state_of(v_head, unit.snapshot));
      head.store_state(state_of(v_head, unit.state_out));
    }
  }
#endif
}

}  // namespace nibble::cuda
