// The delta rule forward, token by token, in F32:
//   S = alpha S;  u = beta (v - S^T k);  S = S + k u^T;  out = S^T q
// Columns of the state do not meet, so a warp walks by itself through one sample with eight columns
// of one head in its registers. The next token's key and gates are on their way meanwhile. Any card
// from sm_80 up. Bound: F32 FLOPs, 7 k_dim v_dim a token and head.
#include "backend/cuda/ops/gradient/gradient_recurrence.cuh"

namespace nibble::cuda {
namespace {

constexpr int kWarpsEach = 4;  // of a block

/// The numbers of a token that a warp needs before it can learn it.
struct Token {
  LaneRows k;
  float alpha, beta, value;  // value: of the lane's own column

  __device__ void load(const HeadOfSample& at, int t, int column) {
    k.load(at.key(at.rows.k, t), at.d.k_dim);
    alpha = at.rows.alpha[at.gate(t)];
    beta = at.rows.beta[at.gate(t)];
    value = column < at.d.v_dim ? at.rows.active[at.at_channel(t) + column] : 0.0F;
  }
};

__global__ __launch_bounds__(kWarpsEach* kWarp) void delta_forward_kernel(GradientDelta d,
                                                                          DeltaRows rows,
                                                                          float* mixed,
                                                                          float* starts) {
  const int slice =
      static_cast<int>(blockIdx.z) * kWarpsEach + static_cast<int>(threadIdx.x) / kWarp;
  if (slice * kSliceColumns >= d.v_dim) return;
  const HeadOfSample at{d, rows, d.samples[blockIdx.x], static_cast<int>(blockIdx.y)};
  const int column = slice * kSliceColumns + lane() / kGroupLanes * kLaneColumns + own_column();
  const bool tells = tells_column() && column < d.v_dim;
  StateSlice state;
  state.clear();
  Token next;
  next.load(at, 0, column);
  for (int t = 0; t < at.sample.count; ++t) {
    const Token now = next;
    LaneRows q;
    q.load(at.key(rows.q, t), d.k_dim);
    if (t + 1 < at.sample.count) next.load(at, t + 1, column);
    if (starts != nullptr && t % kGradientChunk == 0)
      state.store(starts + at.start(t) + slice * kSliceFloats);
    const float missing = now.value - now.alpha * state.times(now.k);
    float u[kLaneColumns];
    spread_columns(now.beta * missing, u);
    state.learn(now.alpha, now.k, u);
    const float out = state.times(q);
    if (tells) mixed[at.at_value(t) + column] = out;
  }
}

}  // namespace

cudaError_t delta_forward(const GradientDelta& shape, const DeltaRows& rows, float* mixed,
                          float* starts, cudaStream_t stream) {
  const int slices = (shape.v_dim + kSliceColumns - 1) / kSliceColumns;
  const dim3 grid(static_cast<unsigned>(shape.sample_count), static_cast<unsigned>(shape.v_heads),
                  static_cast<unsigned>((slices + kWarpsEach - 1) / kWarpsEach));
  delta_forward_kernel<<<grid, kWarpsEach * kWarp, 0, stream>>>(shape, rows, mixed, starts);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
