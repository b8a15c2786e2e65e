// GPTQ to NVFP4 and FP8 on the card, with the bytes that quantize/rounding computes on a CPU: every
// sum has one order there, product and sum are rounded apart (compiled without fused operations),
// and kernels keep that order. Plain pointers and a stream; places and copies are gptq_lanes.h.
//
// H: the damped second moment, columns in the order of rounding. H = M M^T with M upper triangular,
// U its inverse. A row w is rounded column by column, errors e_j = (w_j - q_j) / U_jj; the gradient
// of half the loss is H (q - w) = -M e. Oracle: make_gptq_factor, round_gptq.cc, fp8_gptq.cc.
// Work of K columns: K^3/3 multiplications and subtractions in F64; of N rows N K^2/2 in F32 for
// the feedback, as many for the gradient, and about N K * 500 operations for scales.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensor/tensor.h"

namespace nibble::cuda {

class DeviceContext;

/// An input and all that is made of its sums, in device memory.
struct GptqInput {
  int32_t cols = 0;                  // K, a multiple of 16
  const double* products = nullptr;  // [K, K], the upper triangle, columns as in the file
  double* square = nullptr;          // [K, K]: H, then M, then U above the diagonal and M^T below
  double* roots = nullptr;           // [K]: M's diagonal
  float* factors = nullptr;          // [K, K]: the same in F32
  float* costs = nullptr;            // [K]: 1 / U_jj^2 over its mean
  float* h = nullptr;                // [K, K]: H, both triangles
  float* block_factors = nullptr;    // [K/16, 16, 16]: V, upper triangular, V^T V = H's block^-1
  int32_t* order = nullptr;          // [K/16]: place of a block in the file
  int32_t* broken = nullptr;         // 1: not positive definite
};

/// H = products / unit + damping on the diagonal, into square and h; block_factors of it.
cudaError_t gptq_fill(const GptqInput& input, double unit, double damping, cudaStream_t stream);
/// H -> M in square; sets `broken`.
cudaError_t gptq_factorise(const GptqInput& input, cudaStream_t stream);
/// M -> U, factors and costs.
cudaError_t gptq_invert(const GptqInput& input, cudaStream_t stream);

/// Rows in work, device memory.
struct GptqRows {
  int32_t rows = 0;
  DType dtype = DType::bf16;
  const void* weights = nullptr;       // [N, K] as in the file
  const int32_t* exponents = nullptr;  // FP8, [N]: weights are over 2^exponent
  int32_t exponent = 0;                // NVFP4: the same of all rows
  const float* fp8_scales = nullptr;   // [N, K/16], blocks in order
  float* u = nullptr;                  // [N, K]: weights, then what they are rounded to
  float* errors = nullptr;             // [N, K]
  float* gradient = nullptr;           // [N, K]
  uint8_t* codes = nullptr;            // [N, K/2] or [N, K], as in the file
  uint8_t* scales = nullptr;           // [N, K/16], as in the file
};

/// u = the weights over their exponent, columns in order.
cudaError_t gptq_load(const GptqInput& input, const GptqRows& rows, cudaStream_t stream);
/// Error feedback along the rows; gives u, errors and scales.
cudaError_t gptq_feed_back(const GptqInput& input, const GptqRows& rows, cudaStream_t stream);
/// The same under fp8_scales; gives codes, and leaves scales.
cudaError_t gptq_feed_back_fp8(const GptqInput& input, const GptqRows& rows, cudaStream_t stream);
/// gradient = -M errors.
cudaError_t gptq_gradient(const GptqInput& input, const GptqRows& rows, cudaStream_t stream);
/// Makes at most `sweeps` sweeps of coordinate descent over u and scales.
cudaError_t gptq_descend(const GptqInput& input, const GptqRows& rows, int sweeps,
                         cudaStream_t stream);
/// codes of u under scales.
cudaError_t gptq_encode(const GptqInput& input, const GptqRows& rows, cudaStream_t stream);

/// Sets what kernels may have on a card; called once, before anything else.
void gptq_prepare(DeviceContext& device);
/// The most columns that the descent has shared memory for on a card with so much.
int64_t gptq_columns_max(int64_t shared_bytes);

}  // namespace nibble::cuda
