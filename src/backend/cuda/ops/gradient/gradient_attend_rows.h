// Attention forward and backward without tensor cores and with little shared memory; the arguments
// are those of gradient_attention.h.
#pragma once

#include "backend/cuda/ops/gradient/gradient_attention.h"

namespace nibble::cuda {

cudaError_t attend_rows_forward(const GradientAttention& shape, const AttentionRows& rows,
                                float* mixed, float* log_sum, cudaStream_t stream);
cudaError_t attend_rows_backward(const GradientAttention& shape, const AttentionRows& rows,
                                 const AttentionBack& back, cudaStream_t stream);

}  // namespace nibble::cuda
