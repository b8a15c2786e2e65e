// Full attention over whole samples, forward and backward, in F32: rotation, causal attention with
// grouped queries, the output gate. Oracle: gradient::AttentionGradient.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace nibble::cuda {

/// Each row of a pass has the first row of its sample here, and the one after its last.
struct SampleOfRow {
  int32_t begin = 0;
  int32_t end = 0;
};

struct GradientAttention {
  int32_t rows = 0;
  int32_t q_heads = 0;
  int32_t kv_heads = 0;                  // q_heads / kv_heads at most kQueryGroupMax
  int32_t head_dim = 0;                  // at most kGradientHeadMax
  int32_t shared_bytes = 0;              // the most that a block may have on the card
  const SampleOfRow* samples = nullptr;  // [rows]
};
inline constexpr int kQueryGroupMax = 16;
inline constexpr int kGradientHeadMax = 256;

/// Turns the first 2 * pairs numbers of every head of x [rows, heads * head_dim] to the row's place
/// in its sample. cos, sin: [places, pairs].
struct GradientRope {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int32_t pairs = 0;
};
enum class Turn : uint8_t { forward, back };
cudaError_t turn_heads(const GradientAttention& shape, const GradientRope& rope, int32_t heads,
                       Turn turn, float* x, cudaStream_t stream);

/// Numbers of rows without gaps: q and mixed [rows, q_heads * head_dim], k and v
/// [rows, kv_heads * head_dim].
struct AttentionRows {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
};
/// mixed = softmax(q k^T / sqrt(head_dim)) v; log_sum [rows, q_heads]: the logarithm of the sum of
/// the exponentials.
cudaError_t attend_forward(const GradientAttention& shape, const AttentionRows& rows, float* mixed,
                           float* log_sum, cudaStream_t stream);
struct AttentionBack {
  const float* mixed = nullptr;
  const float* log_sum = nullptr;
  const float* dmixed = nullptr;
  float* along = nullptr;  // scratch [rows, q_heads]
  float* dq = nullptr;
  float* dk = nullptr;
  float* dv = nullptr;
};
cudaError_t attend_backward(const GradientAttention& shape, const AttentionRows& rows,
                            const AttentionBack& back, cudaStream_t stream);

/// projected [rows, q_heads * 2 head_dim] has per head [q | gate]. gated = mixed * sigmoid(gate).
cudaError_t gate_attention(const GradientAttention& shape, const float* projected,
                           const float* mixed, float* gated, cudaStream_t stream);
/// Makes of dgated dmixed, which may be dgated itself, and the gates' part of dprojected, whose
/// other part becomes zero.
cudaError_t gate_attention_back(const GradientAttention& shape, const float* projected,
                                const float* mixed, const float* dgated, float* dmixed,
                                float* dprojected, cudaStream_t stream);

}  // namespace nibble::cuda
