// Attention for cards whose blocks cannot have the tiles of gradient_attend.cu in shared memory: a
// block has a row and a head of keys, a warp one of the heads of queries that share it, and all
// warps go over the same keys, so that those come from L1. Nothing of size T x T is kept: backward
// computes probabilities again from the logarithms of the sums. Bound: F32 FLOPs, of each pair of a
// query and a key 4 head_dim forward and 14 backward.
#include "backend/cuda/ops/gradient/gradient_attend_rows.h"
#include "backend/cuda/ops/gradient/gradient_parts.cuh"

namespace nibble::cuda {
namespace {

constexpr int kEach = kGradientHeadMax / kWarp;  // numbers of a head that a lane has

/// A head's numbers over the lanes of a warp: lane l has numbers l, l + 32, ...; zeros beyond.
struct HeadNumbers {
  float v[kEach] = {};

  __device__ void load(const float* from, int dim) {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      v[i] = lane() + i * kWarp < dim ? from[lane() + i * kWarp] : 0.0F;
  }
  __device__ void store(float* to, int dim) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (lane() + i * kWarp < dim) to[lane() + i * kWarp] = v[i];
  }
  __device__ float dot(const HeadNumbers& other) const {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum = fmaf(v[i], other.v[i], sum);
    return warp_sum_float(sum);
  }
  __device__ void add_scaled(float factor, const HeadNumbers& other) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) v[i] = fmaf(factor, other.v[i], v[i]);
  }
};

/// The head of a warp: blockIdx.x is the row, blockIdx.y the head of keys.
struct Place {
  int64_t row, kv, q;  // heads
  SampleOfRow sample;
  int64_t q_width, kv_width;
  float scale;

  __device__ explicit Place(const GradientAttention& a)
      : row(blockIdx.x),
        kv(blockIdx.y),
        q(kv * (a.q_heads / a.kv_heads) + threadIdx.x / kWarp),
        sample(a.samples[row]),
        q_width(int64_t{a.q_heads} * a.head_dim),
        kv_width(int64_t{a.kv_heads} * a.head_dim),
        scale(1.0F / sqrtf(static_cast<float>(a.head_dim))) {}
  __device__ int64_t at_q(const GradientAttention& a, int64_t r) const {
    return r * q_width + q * a.head_dim;
  }
  __device__ int64_t at_kv(const GradientAttention& a, int64_t r) const {
    return r * kv_width + kv * a.head_dim;
  }
};

__global__ void attend_kernel(GradientAttention a, AttentionRows rows, float* mixed,
                              float* log_sum) {
  const Place at(a);
  HeadNumbers q, k, v, out;
  q.load(rows.q + at.at_q(a, at.row), a.head_dim);
  float most = -INFINITY, total = 0.0F;
  for (int64_t t = at.sample.begin; t <= at.row; ++t) {
    k.load(rows.k + at.at_kv(a, t), a.head_dim);
    v.load(rows.v + at.at_kv(a, t), a.head_dim);
    const float score = at.scale * q.dot(k);
    const float higher = fmaxf(most, score);
    const float kept = expf(most - higher), p = expf(score - higher);
    most = higher;
    total = total * kept + p;
#pragma unroll
    for (int i = 0; i < kEach; ++i) out.v[i] = fmaf(p, v.v[i], out.v[i] * kept);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) out.v[i] /= total;
  out.store(mixed + at.at_q(a, at.row), a.head_dim);
  if (lane() == 0) log_sum[at.row * a.q_heads + at.q] = most + logf(total);
}

/// With p the probabilities and dp_t = dmixed . v_t: the gradient of score t is
/// p_t (dp_t - sum_s p_s dp_s), and that sum is dmixed . mixed.
__global__ void attend_back_q_kernel(GradientAttention a, AttentionRows rows, AttentionBack back) {
  const Place at(a);
  const int64_t head = at.row * a.q_heads + at.q;
  HeadNumbers q, k, v, dmixed, dq;
  q.load(back.mixed + at.at_q(a, at.row), a.head_dim);
  dmixed.load(back.dmixed + at.at_q(a, at.row), a.head_dim);
  const float along = dmixed.dot(q);
  if (lane() == 0) back.along[head] = along;
  q.load(rows.q + at.at_q(a, at.row), a.head_dim);
  const float log_sum = back.log_sum[head];
  for (int64_t t = at.sample.begin; t <= at.row; ++t) {
    k.load(rows.k + at.at_kv(a, t), a.head_dim);
    v.load(rows.v + at.at_kv(a, t), a.head_dim);
    const float p = expf(at.scale * q.dot(k) - log_sum);
    dq.add_scaled(at.scale * p * (dmixed.dot(v) - along), k);
  }
  dq.store(back.dq + at.at_q(a, at.row), a.head_dim);
}

/// The gradients of the key and the value of a row; each warp has what comes from one head of
/// queries, and the first warp adds them up in their order.
__global__ void attend_back_k_kernel(GradientAttention a, AttentionRows rows, AttentionBack back) {
  extern __shared__ float sums[];  // [group][2][head_dim]
  const Place at(a);
  HeadNumbers q, k, v, dmixed, dk, dv;
  k.load(rows.k + at.at_kv(a, at.row), a.head_dim);
  v.load(rows.v + at.at_kv(a, at.row), a.head_dim);
  for (int64_t t = at.row; t < at.sample.end; ++t) {
    q.load(rows.q + at.at_q(a, t), a.head_dim);
    dmixed.load(back.dmixed + at.at_q(a, t), a.head_dim);
    const int64_t head = t * a.q_heads + at.q;
    const float p = expf(at.scale * q.dot(k) - back.log_sum[head]);
    dk.add_scaled(at.scale * p * (dmixed.dot(v) - back.along[head]), q);
    dv.add_scaled(p, dmixed);
  }
  float* mine = sums + static_cast<int>(threadIdx.x) / kWarp * 2 * a.head_dim;
  dk.store(mine, a.head_dim);
  dv.store(mine + a.head_dim, a.head_dim);
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  for (int i = static_cast<int>(threadIdx.x); i < 2 * a.head_dim;
       i += static_cast<int>(blockDim.x)) {
    float sum = 0.0F;
    for (int w = 0; w < warps; ++w) sum += sums[w * 2 * a.head_dim + i];
    float* to = i < a.head_dim ? back.dk : back.dv;
    to[at.at_kv(a, at.row) + i % a.head_dim] = sum;
  }
}

struct AttentionGrid {
  dim3 blocks;
  unsigned threads;
  explicit AttentionGrid(const GradientAttention& a)
      : blocks(static_cast<unsigned>(a.rows), static_cast<unsigned>(a.kv_heads)),
        threads(static_cast<unsigned>(a.q_heads / a.kv_heads * kWarp)) {}
};

}  // namespace

cudaError_t attend_rows_forward(const GradientAttention& shape, const AttentionRows& rows,
                                float* mixed, float* log_sum, cudaStream_t stream) {
  const AttentionGrid grid(shape);
  attend_kernel<<<grid.blocks, grid.threads, 0, stream>>>(shape, rows, mixed, log_sum);
  return cudaGetLastError();
}

cudaError_t attend_rows_backward(const GradientAttention& shape, const AttentionRows& rows,
                                 const AttentionBack& back, cudaStream_t stream) {
  const AttentionGrid grid(shape);
  attend_back_q_kernel<<<grid.blocks, grid.threads, 0, stream>>>(shape, rows, back);
  const size_t shared =
      size_t{grid.threads} / kWarp * 2 * static_cast<size_t>(shape.head_dim) * sizeof(float);
  attend_back_k_kernel<<<grid.blocks, grid.threads, shared, stream>>>(shape, rows, back);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
