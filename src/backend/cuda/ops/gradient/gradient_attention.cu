// Around attention: rotation and the output gate; a thread has a number. Attention itself is
// gradient_attend.cu. Bound: bytes, each operand read and written once.
#include "backend/cuda/ops/gradient/gradient_attention.h"
#include "backend/cuda/ops/gradient/gradient_parts.cuh"

namespace nibble::cuda {
namespace {

__global__ __launch_bounds__(kRowThreads) void turn_kernel(GradientAttention a, GradientRope rope,
                                                           int heads, float direction, float* x) {
  const int64_t i = thread_index();
  if (i >= int64_t{a.rows} * heads * rope.pairs) return;
  const int pair = static_cast<int>(i % rope.pairs);
  const int64_t vector = i / rope.pairs;  // row and head
  const int64_t row = vector / heads;
  const int64_t at = (row - a.samples[row].begin) * rope.pairs + pair;
  const float c = rope.cos[at], s = direction * rope.sin[at];
  float* head = x + vector * a.head_dim;
  const float low = head[pair], high = head[pair + rope.pairs];
  head[pair] = low * c - high * s;
  head[pair + rope.pairs] = high * c + low * s;
}

/// The place of the gate of number i of the heads of a row.
__device__ int64_t gate_place(const GradientAttention& a, int64_t i) {
  return (2 * (i / a.head_dim) + 1) * a.head_dim + i % a.head_dim;
}

__global__ __launch_bounds__(kRowThreads) void gate_kernel(GradientAttention a,
                                                           const float* projected,
                                                           const float* mixed, float* gated) {
  const int64_t i = thread_index();
  if (i < int64_t{a.rows} * a.q_heads * a.head_dim)
    gated[i] = mixed[i] * sigmoid(projected[gate_place(a, i)]);
}

__global__ __launch_bounds__(kRowThreads) void gate_back_kernel(GradientAttention a,
                                                                const float* projected,
                                                                const float* mixed,
                                                                const float* dgated, float* dmixed,
                                                                float* dprojected) {
  const int64_t i = thread_index();
  if (i >= int64_t{a.rows} * a.q_heads * a.head_dim) return;
  const int64_t at = gate_place(a, i);
  const float s = sigmoid(projected[at]), d = dgated[i];
  dprojected[at] = d * mixed[i] * s * (1.0F - s);
  dprojected[at - a.head_dim] = 0.0F;
  dmixed[i] = d * s;
}

int64_t query_numbers(const GradientAttention& a) {
  return int64_t{a.rows} * a.q_heads * a.head_dim;
}

}  // namespace

cudaError_t turn_heads(const GradientAttention& shape, const GradientRope& rope, int32_t heads,
                       Turn turn, float* x, cudaStream_t stream) {
  turn_kernel<<<blocks_of_threads(int64_t{shape.rows} * heads * rope.pairs), kRowThreads, 0,
                stream>>>(shape, rope, heads, turn == Turn::back ? -1.0F : 1.0F, x);
  return cudaGetLastError();
}

cudaError_t gate_attention(const GradientAttention& shape, const float* projected,
                           const float* mixed, float* gated, cudaStream_t stream) {
  gate_kernel<<<blocks_of_threads(query_numbers(shape)), kRowThreads, 0, stream>>>(shape, projected,
                                                                                   mixed, gated);
  return cudaGetLastError();
}

cudaError_t gate_attention_back(const GradientAttention& shape, const float* projected,
                                const float* mixed, const float* dgated, float* dmixed,
                                float* dprojected, cudaStream_t stream) {
  gate_back_kernel<<<blocks_of_threads(query_numbers(shape)), kRowThreads, 0, stream>>>(
      shape, projected, mixed, dgated, dmixed, dprojected);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
