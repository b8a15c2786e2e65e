// The delta rule backward, one thread block for one head of one sample, chunk by chunk from the
// last. The states of a chunk are computed again twice: first those before every few tokens go to
// scratch in device memory, which the L2 holds; then, few tokens at a time, the states before each
// of them go to shared memory, and the gradient of the state, in registers, moves through these
// tokens from the last to the first. A lane reads the parts of states that it wrote itself; warps
// meet in the sums over columns alone, once a token. Any card from sm_80 up.
// Bound: F32 FLOPs, 24 k_dim v_dim a token and head.
#include "backend/cuda/ops/gradient/gradient_recurrence.cuh"

namespace nibble::cuda {
namespace {

constexpr int kWarpsMax = kGradientDeltaMax / kSliceColumns;
constexpr int kKeptMax = 3;  // states in shared memory
constexpr int kBuffers = 2;  // of sums, so that one barrier a token is enough

/// The memory that the warps of a block share, in this order: states [kept][floats of a state], v -
/// S^T k of tokens [kept + 1][columns], sums [kBuffers][warps][2][kGradientDeltaMax] and
/// [kBuffers][warps][2].
struct BackShared {
  float* states;
  float* missing;
  float* sums;
  float* gates;
};
__host__ __device__ constexpr int sums_floats(int warps) { return warps * 2 * kGradientDeltaMax; }
__host__ __device__ constexpr int missing_floats(int warps, int kept) {
  return (kept + 1) * warps * kSliceColumns;
}
__host__ __device__ constexpr int shared_floats(int warps, int kept) {
  return kept * warps * kSliceFloats + missing_floats(warps, kept) +
         kBuffers * (sums_floats(warps) + 2 * warps);
}
static_assert(shared_floats(kWarpsMax, kKeptMax) * sizeof(float) <= 232448);

/// A block's walk through the chunks of one head of one sample.
class HeadBack {
 public:
  __device__ HeadBack(const HeadOfSample& at, const DeltaBack& back, int kept, float* scratch,
                      float* shared)
      : at_(at),
        back_(back),
        scratch_(scratch + warp() * kSliceFloats),
        kept_(kept),
        first_column_(warp() * kSliceColumns + lane() / kGroupLanes * kLaneColumns) {
    shared_.states = shared + warp() * kSliceFloats;
    shared_.missing = shared + kept * state_floats();
    shared_.sums = shared_.missing + missing_floats(warps(), kept);
    shared_.gates = shared_.sums + kBuffers * sums_floats(warps());
  }

  __device__ void run() {
    ds_.clear();
    const int chunks = (at_.sample.count + kGradientChunk - 1) / kGradientChunk;
    const int each = kept_ + 1;
    for (int chunk = chunks - 1; chunk >= 0; --chunk) {
      const int begin = chunk * kGradientChunk;
      const int count = min(kGradientChunk, at_.sample.count - begin);
      const int parts = (count + each - 1) / each;
      state_.load(back_.starts + at_.start(begin) + warp() * kSliceFloats);
      for (int part = 0; part < parts; ++part) {
        state_.store(scratch_ + part * state_floats());
        if (part + 1 < parts)
          for (int t = 0; t < each; ++t) learn(begin + part * each + t);
      }
      for (int part = parts - 1; part >= 0; --part)
        go_back(begin + part * each, min(each, count - part * each), part);
    }
  }

 private:
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / kWarp; }
  static __device__ int warps() { return static_cast<int>(blockDim.x) / kWarp; }
  __device__ int state_floats() const { return warps() * kSliceFloats; }

  __device__ void learn(int t) {
    LaneRows k;
    k.load(at_.key(at_.rows.k, t), at_.d.k_dim);
    learn(t, k, missing(t, k));
  }
  __device__ float missing(int t, const LaneRows& k) const {
    const int column = first_column_ + own_column();
    const float value = column < at_.d.v_dim ? at_.rows.active[at_.at_channel(t) + column] : 0.0F;
    return value - at_.rows.alpha[at_.gate(t)] * state_.times(k);
  }
  __device__ void learn(int t, const LaneRows& k, float missing) {
    float u[kLaneColumns];
    spread_columns(at_.rows.beta[at_.gate(t)] * missing, u);
    state_.learn(at_.rows.alpha[at_.gate(t)], k, u);
  }

  /// Through the tokens [first, first + count), whose first state is part `part` of the scratch.
  __device__ void go_back(int first, int count, int part) {
    state_.load(scratch_ + part * state_floats());
    for (int i = 0; i < count; ++i) {
      if (i > 0) state_.store(shared_.states + (i - 1) * state_floats());
      LaneRows k;
      k.load(at_.key(at_.rows.k, first + i), at_.d.k_dim);
      const float own = missing(first + i, k);
      if (tells_column())
        shared_.missing[i * warps() * kSliceColumns + first_column_ + own_column()] = own;
      if (i + 1 < count) learn(first + i, k, own);
    }
    __syncwarp();
    for (int i = count - 1; i >= 0; --i) {
      if (i > 0 && i + 1 < count) state_.load(shared_.states + (i - 1) * state_floats());
      if (i == 0 && count > 1) state_.load(scratch_ + part * state_floats());
      token_back(first + i, i);
    }
    __syncwarp();
  }

  /// With P = alpha S before the token and p = P^T k the prediction: u = beta (v - p), so
  /// dv = beta du, dp = -beta du, and p leads to P and k. The state after it is P + k u^T.
  __device__ void token_back(int t, int index) {
    const float alpha = at_.rows.alpha[at_.gate(t)], beta = at_.rows.beta[at_.gate(t)];
    LaneRows k, q;
    k.load(at_.key(at_.rows.k, t), at_.d.k_dim);
    q.load(at_.key(at_.rows.q, t), at_.d.k_dim);
    float dout[kLaneColumns], u[kLaneColumns], du[kLaneColumns] = {};
    load_columns(t, dout);
#pragma unroll
    for (int e = 0; e < kLaneRows; ++e)
#pragma unroll
      for (int n = 0; n < kLaneColumns; ++n) {
        ds_.s[n][e] = fmaf(q.v[e], dout[n], ds_.s[n][e]);
        du[n] = fmaf(k.v[e], ds_.s[n][e], du[n]);
      }
    const float own = sum_columns(du);
    if (tells_column() && first_column_ + own_column() < at_.d.v_dim)
      back_.dactive[at_.at_channel(t) + first_column_ + own_column()] = beta * own;
    spread_columns(own, du);
    const float4 missing = *reinterpret_cast<const float4*>(
        shared_.missing + index * warps() * kSliceColumns + first_column_);
    float dbeta = du[0] * missing.x + du[1] * missing.y + du[2] * missing.z + du[3] * missing.w;
    u[0] = beta * missing.x;
    u[1] = beta * missing.y;
    u[2] = beta * missing.z;
    u[3] = beta * missing.w;
#pragma unroll
    for (int n = 0; n < kLaneColumns; ++n) du[n] *= beta;
    float* sums = shared_.sums + t % kBuffers * sums_floats(warps());
    float* gates = shared_.gates + t % kBuffers * 2 * warps();
    keys_back(k, alpha, u, du, dout, sums + warp() * 2 * kGradientDeltaMax);
    float dalpha = state_back(k, alpha, du);
    dalpha = warp_sum_float(dalpha);
    dbeta += __shfl_xor_sync(0xFFFFFFFFU, dbeta, kGroupLanes);
    if (lane() == 0) {
      gates[2 * warp()] = dalpha;
      gates[2 * warp() + 1] = dbeta;
    }
    __syncthreads();
    add_up(t, sums, gates);
  }

  __device__ void load_columns(int t, float (&x)[kLaneColumns]) const {
    const float* from = back_.dmixed + at_.at_value(t) + first_column_;
    if (at_.d.v_dim % kLaneColumns == 0) {
      float4 v = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      if (first_column_ < at_.d.v_dim) v = *reinterpret_cast<const float4*>(from);
      x[0] = v.x;
      x[1] = v.y;
      x[2] = v.z;
      x[3] = v.w;
      return;
    }
#pragma unroll
    for (int n = 0; n < kLaneColumns; ++n) x[n] = first_column_ + n < at_.d.v_dim ? from[n] : 0.0F;
  }

  /// The warp's part of the gradients of the key and the query: sums over its columns. Lanes of the
  /// first four columns end up with those of keys, the others with those of queries.
  __device__ void keys_back(const LaneRows& k, float alpha, const float (&u)[kLaneColumns],
                            const float (&du)[kLaneColumns], const float (&dout)[kLaneColumns],
                            float* sums) const {
    float written = 0.0F;
#pragma unroll
    for (int n = 0; n < kLaneColumns; ++n) written = fmaf(u[n], dout[n], written);
    const bool queries = lane() >= kGroupLanes;
    float mine[kLaneRows];
#pragma unroll
    for (int e = 0; e < kLaneRows; ++e) {
      float dk = 0.0F, predicted = 0.0F, read = 0.0F;
#pragma unroll
      for (int n = 0; n < kLaneColumns; ++n) {
        dk = fmaf(ds_.s[n][e], u[n], dk);
        predicted = fmaf(state_.s[n][e], du[n], predicted);
        read = fmaf(state_.s[n][e], dout[n], read);
      }
      dk = fmaf(-alpha, predicted, dk);
      const float dq = fmaf(alpha, read, k.v[e] * written);
      mine[e] = queries ? dq : dk;
      mine[e] += __shfl_xor_sync(0xFFFFFFFFU, queries ? dk : dq, kGroupLanes);
    }
    float* to = sums + (queries ? kGradientDeltaMax : 0) + lane() % kGroupLanes * 4;
    *reinterpret_cast<float4*>(to) = make_float4(mine[0], mine[1], mine[2], mine[3]);
    *reinterpret_cast<float4*>(to + kGradientDeltaMax / 2) =
        make_float4(mine[4], mine[5], mine[6], mine[7]);
  }

  /// The gradient of the state before the token; returns the lane's part of that of alpha.
  __device__ float state_back(const LaneRows& k, float alpha, const float (&du)[kLaneColumns]) {
    float dalpha = 0.0F;
#pragma unroll
    for (int n = 0; n < kLaneColumns; ++n)
#pragma unroll
      for (int e = 0; e < kLaneRows; ++e) {
        const float value = fmaf(-k.v[e], du[n], ds_.s[n][e]);
        dalpha = fmaf(value, state_.s[n][e], dalpha);
        ds_.s[n][e] = alpha * value;
      }
    return dalpha;
  }

  /// The sums over all warps, in their order. The next token has other memory for its sums.
  __device__ void add_up(int t, const float* sums, const float* gates) const {
    const int count = warps();
    for (int i = static_cast<int>(threadIdx.x); i < 2 * kGradientDeltaMax;
         i += static_cast<int>(blockDim.x)) {
      const int row = i % kGradientDeltaMax;
      if (row >= at_.d.k_dim) continue;
      float sum = 0.0F;
      for (int w = 0; w < count; ++w) sum += sums[w * 2 * kGradientDeltaMax + i];
      float* to = i < kGradientDeltaMax ? back_.dk : back_.dq;
      to[at_.gate(t) * at_.d.k_dim + row] = sum;
    }
    const int last = static_cast<int>(blockDim.x) - 1 - static_cast<int>(threadIdx.x);
    if (last >= 2) return;
    float sum = 0.0F;
    for (int w = 0; w < count; ++w) sum += gates[2 * w + last];
    (last == 0 ? back_.dalpha : back_.dbeta)[at_.gate(t)] = sum;
  }

  const HeadOfSample& at_;
  const DeltaBack& back_;
  float* scratch_;
  int kept_;
  int first_column_;
  BackShared shared_;
  StateSlice state_, ds_;  // before the token in work; its gradient
};

/// A block has one head of one sample after the other.
__global__ __launch_bounds__(kWarpsMax* kWarp,
                             1) void delta_backward_kernel(GradientDelta d, DeltaRows rows,
                                                           DeltaBack back, int kept) {
  extern __shared__ __align__(16) float shared[];
  float* scratch = back.scratch + int64_t{blockIdx.x} * delta_scratch_floats(d.v_dim);
  for (int item = static_cast<int>(blockIdx.x); item < d.sample_count * d.v_heads;
       item += static_cast<int>(gridDim.x)) {
    const HeadOfSample at{d, rows, d.samples[item / d.v_heads], item % d.v_heads};
    HeadBack(at, back, kept, scratch, shared).run();
    __syncthreads();
  }
}

}  // namespace

cudaError_t delta_backward(const GradientDelta& shape, const DeltaRows& rows, const DeltaBack& back,
                           cudaStream_t stream) {
  const int warps = (shape.v_dim + kSliceColumns - 1) / kSliceColumns;
  int kept = kKeptMax;  // kept + 1 divides kGradientChunk
  const auto bytes = [&] { return shared_floats(warps, kept) * static_cast<int>(sizeof(float)); };
  while (kept > 0 && bytes() > back.shared_bytes) kept /= 2;
  const cudaError_t error =
      cudaFuncSetAttribute(reinterpret_cast<const void*>(delta_backward_kernel),
                           cudaFuncAttributeMaxDynamicSharedMemorySize, bytes());
  if (error != cudaSuccess) return error;
  const int items = shape.sample_count * shape.v_heads;
  const auto blocks = static_cast<unsigned>(items < back.blocks ? items : back.blocks);
  delta_backward_kernel<<<blocks, static_cast<unsigned>(warps * kWarp),
                          static_cast<size_t>(bytes()), stream>>>(shape, rows, back, kept);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
