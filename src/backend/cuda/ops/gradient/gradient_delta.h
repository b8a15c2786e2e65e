// The gated delta rule over whole samples, forward and backward, in F32, with the convolution, the
// lengths and the gates before it. Oracle: gradient::DeltaNetGradient, gradient::run_delta_rule.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/ops/gradient/gradient_attention.h"

namespace nibble::cuda {

/// The states before every so many tokens of a sample are kept; others are computed again.
inline constexpr int kGradientChunk = 16;
inline constexpr int kGradientDeltaMax = 128;  // numbers of a head's keys or values

/// Rows of one sample, and the number of its first chunk among those of all samples.
struct DeltaSample {
  int32_t begin = 0;
  int32_t count = 0;
  int32_t chunk = 0;
};

struct GradientDelta {
  int32_t rows = 0;
  int32_t k_heads = 0;
  int32_t v_heads = 0;
  int32_t k_dim = 0;
  int32_t v_dim = 0;
  int32_t taps = 0;
  const SampleOfRow* sample_of_row = nullptr;  // [rows]
  const DeltaSample* samples = nullptr;        // [sample_count]
  int32_t sample_count = 0;

  int32_t k_width() const { return k_heads * k_dim; }
  int32_t channels() const { return 2 * k_width() + v_heads * v_dim; }
};

/// convolved_t = sum_j conv_j qkv_(t - taps + 1 + j) of one sample, [rows, channels]; active =
/// silu(convolved). conv: [channels, taps], oldest input first.
cudaError_t convolve_forward(const GradientDelta& shape, const float* conv, const float* qkv,
                             float* convolved, float* active, cudaStream_t stream);
/// Turns dactive into the gradient of convolved, and makes that of qkv of it.
cudaError_t convolve_backward(const GradientDelta& shape, const float* conv, const float* convolved,
                              float* dactive, float* dqkv, cudaStream_t stream);

/// q and k [rows, k_heads * k_dim] of active [q | k | v]: of unit length; q times 1/sqrt(k_dim).
cudaError_t unit_lengths(const GradientDelta& shape, const float* active, float* q, float* k,
                         cudaStream_t stream);
/// dq and dk [rows, v_heads * k_dim], of which those of one head of keys are added up, to their
/// part of dactive.
cudaError_t unit_lengths_back(const GradientDelta& shape, const float* active, const float* dq,
                              const float* dk, float* dactive, cudaStream_t stream);

/// The gates are made of the product a [rows, v_heads]: alpha = exp(-decay softplus(a + dt_bias));
/// beta, the product b before, becomes its sigmoid.
struct DeltaGates {
  const float* decay = nullptr;    // [v_heads]
  const float* dt_bias = nullptr;  // [v_heads]
  const float* a = nullptr;
  float* alpha = nullptr;
  float* beta = nullptr;
};
cudaError_t delta_gates(const GradientDelta& shape, const DeltaGates& gates, cudaStream_t stream);
/// dalpha and dbeta become the gradients of a and b.
cudaError_t delta_gates_back(const GradientDelta& shape, const DeltaGates& gates, float* dalpha,
                             float* dbeta, cudaStream_t stream);

struct DeltaRows {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* active = nullptr;  // v is its last part
  const float* alpha = nullptr;
  const float* beta = nullptr;
};
/// mixed [rows, v_heads * v_dim]; starts [chunks, v_heads] states of delta_state_floats(), or null.
cudaError_t delta_forward(const GradientDelta& shape, const DeltaRows& rows, float* mixed,
                          float* starts, cudaStream_t stream);
struct DeltaBack {
  const float* starts = nullptr;
  const float* dmixed = nullptr;
  float* scratch = nullptr;  // delta_scratch_floats for each of `blocks`
  int32_t blocks = 0;
  int32_t shared_bytes = 0;  // the most that a block may have on the card
  float* dq = nullptr;       // [rows, v_heads * k_dim]
  float* dk = nullptr;       // the same
  float* dactive = nullptr;  // its part of values is written
  float* dalpha = nullptr;   // [rows, v_heads]
  float* dbeta = nullptr;
};
cudaError_t delta_backward(const GradientDelta& shape, const DeltaRows& rows, const DeltaBack& back,
                           cudaStream_t stream);
/// Numbers of a state in memory, in the order of gradient_recurrence.cuh.
constexpr int64_t delta_state_floats(int64_t v_dim) {
  return kGradientDeltaMax * ((v_dim + 7) / 8 * 8);
}
/// One block needs the states of a chunk.
constexpr int64_t delta_scratch_floats(int64_t v_dim) {
  return kGradientChunk * delta_state_floats(v_dim);
}

}  // namespace nibble::cuda
