// The causal convolution before the recurrence, where it has a kernel of its own: a thread has one
// channel of a sequence. In a pass that replays it also convolves the saved inputs, moves their
// gates to where the recurrence reads them, and saves the inputs of drafted rows.
#pragma once

#include "backend/cuda/ops/delta_net/delta_net.h"
#include "backend/cuda/ptx/device_math.cuh"

namespace nibble::cuda {

inline constexpr int kConvolveThreads = 256;

/// Returns number `i` of saved row `row` of a slot, and of replayed row `row` of a sequence.
__device__ __forceinline__ float* saved_at(const DeltaNetArgs& a, int64_t slot, int row, int i) {
  return a.state.saved + slot * a.state.slot_stride + row * a.state.saved_stride + i;
}
__device__ __forceinline__ float* replayed_at(const DeltaNetArgs& a, int sequence, int row, int i) {
  return a.replayed + (static_cast<int64_t>(sequence) * a.replay_rows + row) * a.saved_numbers() +
         i;
}

/// Moves gate `gate` (a of each head, then b) of the rows that a sequence replays to `replayed`,
/// and saves that of drafted rows in their place.
__device__ __forceinline__ void pass_gate(const DeltaNetArgs& a, int sequence, int gate) {
  const int at = a.qkv_rows() + gate;
  for (int i = 0; i < a.batch.replay[sequence]; ++i)
    *replayed_at(a, sequence, i, at) = *saved_at(a, a.batch.state_in[sequence], i, at);
  if (a.batch.drafted[sequence] == 0) return;
  const int64_t first = a.batch.row_begin[sequence];
  const float* from = gate < a.v_heads ? a.a + gate : a.b + gate - a.v_heads;
  for (int i = 0; i < a.batch.row_count[sequence]; ++i)
    *saved_at(a, a.batch.state_out[sequence], i, at) = from[(first + i) * a.gate_stride];
}

/// The convolution of one channel: its weights and the last taps - 1 inputs, oldest first.
struct ChannelWindow {
  float weights[kConvTapsMax];
  float inputs[kConvTapsMax];

  __device__ __forceinline__ void load(const DeltaNetArgs& a, int sequence, int channel) {
    const float* in = a.state.conv + a.batch.state_in[sequence] * a.state.slot_stride + channel;
#pragma unroll
    for (int j = 0; j < kConvTapsMax; ++j) {
      weights[j] = j < a.taps ? a.conv[channel * a.taps + j] : 0.0F;
      inputs[j] = j < a.taps - 1 ? in[static_cast<int64_t>(j) * a.qkv_rows()] : 0.0F;
    }
  }
  /// Returns the output for input x, which becomes the newest.
  __device__ __forceinline__ float convolve(const DeltaNetArgs& a, float x) {
    const int past = a.taps - 1;
    float sum = 0.0F;
#pragma unroll
    for (int j = 0; j < kConvTapsMax; ++j)
      if (j < past) sum = fmaf(weights[j], inputs[j], sum);
#pragma unroll
    for (int j = 0; j < kConvTapsMax; ++j)
      if (j == past) sum = fmaf(weights[j], x, sum);
#pragma unroll
    for (int j = 0; j + 1 < kConvTapsMax; ++j)
      if (j < past) inputs[j] = j + 1 == past ? x : inputs[j + 1];
    return silu(sum);
  }
  __device__ __forceinline__ void store(const DeltaNetArgs& a, int64_t slot, int channel) const {
    float* out = a.state.conv + slot * a.state.slot_stride + channel;
#pragma unroll
    for (int j = 0; j < kConvTapsMax; ++j)
      if (j < a.taps - 1) out[static_cast<int64_t>(j) * a.qkv_rows()] = inputs[j];
  }
};

/// A thread convolves all rows of a sequence in one channel, in order: first those that it replays.
template <bool kReplays>
__global__ void __launch_bounds__(kConvolveThreads)
    convolve_kernel(const __grid_constant__ DeltaNetArgs a) {
  touch(a);
  const int channels = a.qkv_rows();
  const int channel = blockIdx.x * kConvolveThreads + threadIdx.x;
  const int sequence = blockIdx.y;
  const int rows = a.batch.row_count[sequence];
  if (channel >= (kReplays ? a.saved_numbers() : channels) || rows == 0) return wait_for_inputs();
  if (kReplays && channel >= channels) {
    wait_for_inputs();
    return pass_gate(a, sequence, channel - channels);
  }
  ChannelWindow window;
  window.load(a, sequence, channel);
  wait_for_inputs();
  const int first = a.batch.row_begin[sequence];
  const int64_t state_out = a.batch.state_out[sequence];
  const bool drafted = kReplays && a.batch.drafted[sequence] != 0;
  if constexpr (kReplays) {
    const int64_t state_in = a.batch.state_in[sequence];
    for (int i = 0; i < a.batch.replay[sequence]; ++i)
      *replayed_at(a, sequence, i, channel) =
          window.convolve(a, *saved_at(a, state_in, i, channel));
    if (drafted) window.store(a, state_out, channel);
  }
  for (int row = first; row < first + rows; ++row) {
    const float x = a.qkv[static_cast<int64_t>(row) * channels + channel];
    a.convolved[static_cast<int64_t>(row) * channels + channel] = window.convolve(a, x);
    if (drafted) *saved_at(a, state_out, row - first, channel) = x;
    const int snapshot = a.batch.snapshot_slot[row];
    if (snapshot >= 0) window.store(a, snapshot, channel);
  }
  if (!drafted) window.store(a, state_out, channel);
}

}  // namespace nibble::cuda
