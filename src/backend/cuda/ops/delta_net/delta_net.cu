// The gated delta rule, row by row: causal convolution with SiLU, unit-length q and k, gates, then
// per value head  S = alpha S + k (beta (v - alpha S^T k))^T,  o = S^T q, gated RMS norm (model.md
// of the family: arXiv 2412.06464). State in F32 registers, read and written once per pass, and, if
// kept in BF16, rounded after every row. k_dim and v_dim up to 128. Bound: the bytes of the state,
// twice.
#include "backend/cuda/ops/delta_net/recurrence_convolve.cuh"
#include "backend/cuda/ops/linear/split_inputs.cuh"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/launch_log.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kLaneColumns = kDeltaDimMax / 32;   // value columns of a lane
constexpr int kWarpRows = kDeltaDimMax / kWarps;  // key rows of a warp

/// Returns number `i` of saved row `row` of a slot, and of replayed row `row` of a sequence.
__device__ __forceinline__ float* saved_at(const DeltaNetArgs& a, int64_t slot, int row, int i) {
  return a.state.saved + slot * a.state.slot_stride + row * a.state.saved_stride + i;
}
__device__ __forceinline__ float* replayed_at(const DeltaNetArgs& a, int sequence, int row, int i) {
  return a.replayed +
         (static_cast<int64_t>(sequence) * a.replay_rows + row) * a.saved_numbers() + i;
}

/// Moves gate `gate` (a of each head, then b) of the rows that a sequence replays to `replayed`, and
/// saves that of drafted rows in their place.
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
    const float* in =
        a.state.conv + a.batch.state_in[sequence] * a.state.slot_stride + channel;
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
__global__ void __launch_bounds__(kThreads)
    convolve_kernel(const __grid_constant__ DeltaNetArgs a) {
  touch(a);
  const int channels = a.qkv_rows();
  const int channel = blockIdx.x * kThreads + threadIdx.x;
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

/// A thread has key rows warp * 16 + i and value columns lane * 4 + c of the state of one head.
struct HeadState {
  float s[kWarpRows][kLaneColumns];
};

template <bool kVector, typename T>
__device__ __forceinline__ void load_state(const DeltaNetArgs& a, const T* from, HeadState& state) {
  const int warp = threadIdx.x / 32;
  const int column = static_cast<int>(threadIdx.x % 32) * kLaneColumns;
#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) {
    const int row = warp * kWarpRows + i;
    if constexpr (kVector) {
      float4 v = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      if (row < a.k_dim && column < a.v_dim) v = load_four(from + row * a.v_dim + column);
      state.s[i][0] = v.x;
      state.s[i][1] = v.y;
      state.s[i][2] = v.z;
      state.s[i][3] = v.w;
    } else {
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c)
        state.s[i][c] = row < a.k_dim && column + c < a.v_dim
                            ? load_number(from + row * a.v_dim + column + c)
                            : 0.0F;
    }
  }
}

template <bool kVector, typename T>
__device__ __forceinline__ void store_state(const DeltaNetArgs& a, const HeadState& state, T* to) {
  const int warp = threadIdx.x / 32;
  const int column = static_cast<int>(threadIdx.x % 32) * kLaneColumns;
#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) {
    const int row = warp * kWarpRows + i;
    if (row >= a.k_dim || column >= a.v_dim) continue;
    if constexpr (kVector) {
      store_four(to + row * a.v_dim + column,
                 make_float4(state.s[i][0], state.s[i][1], state.s[i][2], state.s[i][3]));
    } else {
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c)
        if (column + c < a.v_dim) store_number(to + row * a.v_dim + column + c, state.s[i][c]);
    }
  }
}

template <typename T>
__device__ __forceinline__ void round_state(HeadState& state) {
#pragma unroll
  for (int i = 0; i < kWarpRows; ++i)
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c) state.s[i][c] = kept<T>(state.s[i][c]);
}

struct Scratch {
  float q[kDeltaDimMax];
  float k[kDeltaDimMax];
  float partial[kWarps][kDeltaDimMax];
  float out_partial[kWarps][kDeltaDimMax];
  float squares[kWarps];
  float norm[kWarps];
};

/// The inputs of one step of the recurrence: qkv after the convolution, and a and b of all heads.
struct StepInputs {
  const float* qkv;
  const float* a;
  const float* b;
};
__device__ __forceinline__ StepInputs inputs_of(const DeltaNetArgs& a, int row) {
  return {.qkv = a.convolved + static_cast<int64_t>(row) * a.qkv_rows(),
          .a = a.a + row * a.gate_stride,
          .b = a.b + row * a.gate_stride};
}
__device__ __forceinline__ StepInputs replayed_inputs(const DeltaNetArgs& a, int sequence, int i) {
  const float* gates = replayed_at(a, sequence, i, a.qkv_rows());
  return {.qkv = gates - a.qkv_rows(), .a = gates, .b = gates + a.v_heads};
}

/// Writes q at unit length (times 1 / sqrt(k_dim)) and k at unit length to shared memory; warps 0-3
/// make q, warps 4-7 k.
__device__ __forceinline__ void load_q_k(const DeltaNetArgs& a, const StepInputs& inputs,
                                         int k_head, Scratch& shared) {
  const int i = threadIdx.x % 128;
  const bool is_q = threadIdx.x < 128;
  const float* qkv = inputs.qkv;
  const int at = (is_q ? 0 : a.k_heads * a.k_dim) + k_head * a.k_dim + i;
  const float x = i < a.k_dim ? qkv[at] : 0.0F;
  const float squares = warp_sum(x * x);
  if (threadIdx.x % 32 == 0) shared.squares[threadIdx.x / 32] = squares;
  __syncthreads();
  const float* own = shared.squares + (is_q ? 0 : 4);
  const float total = own[0] + own[1] + own[2] + own[3];
  const float scale = rsqrtf(total + 1e-6F) * (is_q ? rsqrtf(static_cast<float>(a.k_dim)) : 1.0F);
  (is_q ? shared.q : shared.k)[i] = x * scale;
  __syncthreads();
}

/// Advances one head by one row; returns o (before the norm) of column threadIdx.x.
__device__ __forceinline__ float advance(const DeltaNetArgs& a, const StepInputs& inputs,
                                         int v_head, HeadState& state, Scratch& shared) {
  const int warp = threadIdx.x / 32;
  const int column = static_cast<int>(threadIdx.x % 32) * kLaneColumns;
  const float beta = sigmoid(inputs.b[v_head]);
  const float pre = inputs.a[v_head] + a.dt_bias[v_head];
  const float step = pre > 20.0F ? pre : log1pf(expf(pre));
  const float alpha = expf(-a.decay[v_head] * step);
  float prediction[kLaneColumns] = {};
#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) {
    const float k = shared.k[warp * kWarpRows + i];
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c) {
      state.s[i][c] *= alpha;
      prediction[c] = fmaf(state.s[i][c], k, prediction[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < kLaneColumns; ++c) shared.partial[warp][column + c] = prediction[c];
  __syncthreads();
  const float* v = inputs.qkv + 2 * a.k_heads * a.k_dim + v_head * a.v_dim;
  float update[kLaneColumns];
#pragma unroll
  for (int c = 0; c < kLaneColumns; ++c) {
    float total = 0.0F;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += shared.partial[w][column + c];
    update[c] = column + c < a.v_dim ? beta * (v[column + c] - total) : 0.0F;
  }
  float out[kLaneColumns] = {};
#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) {
    const float k = shared.k[warp * kWarpRows + i];
    const float q = shared.q[warp * kWarpRows + i];
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c) {
      state.s[i][c] = fmaf(k, update[c], state.s[i][c]);
      out[c] = fmaf(state.s[i][c], q, out[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < kLaneColumns; ++c) shared.out_partial[warp][column + c] = out[c];
  __syncthreads();
  float total = 0.0F;
  if (threadIdx.x < kDeltaDimMax)
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += shared.out_partial[w][threadIdx.x];
  return total;
}

/// Computes out = norm(o) * silu(z) of one head by the first 128 threads.
template <bool kInParts>
__device__ __forceinline__ void write_out(const DeltaNetArgs& a, int row, int v_head, float o,
                                          Scratch& shared) {
  const int i = threadIdx.x;
  const bool present = i < a.v_dim;
  const float total = block_sum<kWarps>(present ? o * o : 0.0F, shared.norm);
  if (!present) return;
  const float scale = rsqrtf(total / static_cast<float>(a.v_dim) + a.eps);
  const int at = v_head * a.v_dim + i;
  const float z = a.z[static_cast<int64_t>(row) * a.v_heads * a.v_dim + at];
  const float x = o * scale * a.norm[i] * silu(z);
  if constexpr (kInParts) return store_parts(a.out + row * a.out_stride, a.out_stride, at, x);
  a.out[row * a.out_stride + x_place(at)] = to_bf16(x);
}

/// A block has one (value head, sequence).
template <bool kVector, typename T, bool kReplays, bool kInParts = false>
__global__ void __launch_bounds__(kThreads, 2)
    recurrence_kernel(const __grid_constant__ DeltaNetArgs a) {
  __shared__ Scratch shared;
  const int v_head = blockIdx.x;
  const int sequence = blockIdx.y;
  // The state was written by the pass before at the latest, so it is read ahead of the inputs.
  const int rows = a.batch.row_count[sequence];
  const int64_t head_at = static_cast<int64_t>(v_head) * a.k_dim * a.v_dim;
  const int64_t slot_in = a.batch.state_in[sequence];
  const int64_t slot_out = a.batch.state_out[sequence];
  HeadState state;
  if (rows > 0) load_state<kVector>(a, state_at<T>(a.state, slot_in, head_at), state);
  wait_for_inputs();
  if (rows == 0) return;
  const int k_head = v_head / (a.v_heads / a.k_heads);
  const int first = a.batch.row_begin[sequence];
  const bool drafted = kReplays && a.batch.drafted[sequence] != 0;
  if constexpr (kReplays) {
    for (int i = 0; i < a.batch.replay[sequence]; ++i) {
      const StepInputs inputs = replayed_inputs(a, sequence, i);
      load_q_k(a, inputs, k_head, shared);
      advance(a, inputs, v_head, state, shared);
      round_state<T>(state);
    }
    if (drafted) store_state<kVector>(a, state, state_at<T>(a.state, slot_out, head_at));
  }
  for (int row = first; row < first + rows; ++row) {
    const StepInputs inputs = inputs_of(a, row);
    load_q_k(a, inputs, k_head, shared);
    const float o = advance(a, inputs, v_head, state, shared);
    write_out<kInParts>(a, row, v_head, o, shared);
    round_state<T>(state);
    const int64_t snapshot = a.batch.snapshot_slot[row];
    if (snapshot >= 0) store_state<kVector>(a, state, state_at<T>(a.state, snapshot, head_at));
  }
  if (!drafted) store_state<kVector>(a, state, state_at<T>(a.state, slot_out, head_at));
}

/// Launches a kernel that has dynamic shared memory.
template <void (*kKernel)(DeltaNetArgs)>
void launch_walk(const DeltaNetArgs& args, const DeltaNetPlan& plan, const Launcher& launcher) {
  launcher.device->allow_shared(kKernel, plan.shared_bytes);
  launch(kKernel, launcher, static_cast<unsigned>(plan.blocks), kStreamThreads,
         static_cast<size_t>(plan.shared_bytes), args);
}

/// Launches a block for each head and sequence.
template <typename T, bool kReplays>
void launch_portable(const DeltaNetArgs& args, const DeltaNetPlan& plan, const Launcher& launcher) {
  const dim3 heads(static_cast<unsigned>(args.v_heads),
                   static_cast<unsigned>(args.batch.sequences));
  const bool vector = plan.access == DeltaNetPlan::Access::vectors;
  const bool in_parts = args.kernels == DeltaNetKernels::in_parts;
  const auto kernel =
      in_parts ? (vector ? recurrence_kernel<true, T, kReplays, true>
                         : recurrence_kernel<false, T, kReplays, true>)
               : (vector ? recurrence_kernel<true, T, kReplays>
                         : recurrence_kernel<false, T, kReplays>);
  launch(kernel, launcher, heads, kThreads, 0, args);
}

template <typename T, bool kReplays>
void launch_recurrence(const DeltaNetArgs& args, const DeltaNetPlan& plan,
                       const Launcher& launcher) {
  Launcher clusters = launcher;
  switch (plan.kernel) {
    case DeltaNetPlan::Kernel::convolve:
      return plan.channel_parts == 2
                 ? launch_walk<recurrence_convolve_kernel<T, 2>>(args, plan, launcher)
                 : launch_walk<recurrence_convolve_kernel<T, 3>>(args, plan, launcher);
    case DeltaNetPlan::Kernel::split:
      clusters.cluster = plan.cluster;
      return launch(recurrence_split_kernel<T, kReplays>, clusters, static_cast<unsigned>(plan.blocks),
                    static_cast<unsigned>(plan.threads), 0, args);
    case DeltaNetPlan::Kernel::stream:
      return launch_walk<recurrence_stream_kernel<T, kReplays>>(args, plan, launcher);
    case DeltaNetPlan::Kernel::portable:
      return launch_portable<T, kReplays>(args, plan, launcher);
  }
}

template <bool kReplays>
void launch_rule(const DeltaNetArgs& args, const DeltaNetPlan& plan, const Launcher& launcher) {
  if (plan.convolution == DeltaNetPlan::Convolution::apart) {
    const int channels = kReplays ? args.saved_numbers() : args.qkv_rows();
    const dim3 grid(static_cast<unsigned>((channels + kThreads - 1) / kThreads),
                    static_cast<unsigned>(args.batch.sequences));
    launch(convolve_kernel<kReplays>, launcher.of(Step::convolve), grid, kThreads, 0, args);
  }
  const Launcher recur = launcher.of(Step::recur);
  plan.state == StateFormat::bf16 ? launch_recurrence<uint16_t, kReplays>(args, plan, recur)
                                  : launch_recurrence<float, kReplays>(args, plan, recur);
}

}  // namespace

void delta_net(const DeltaNetArgs& args, const Launcher& launcher) {
  const DeltaNetPlan plan = select_delta_net(args, launcher.card);
  log_launch(launcher.of(Step::recur), plan, {.states = delta_state_bytes(args)});
  args.batch.replays ? launch_rule<true>(args, plan, launcher)
                     : launch_rule<false>(args, plan, launcher);
}

}  // namespace nibble::cuda
