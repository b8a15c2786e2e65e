// This is the end of a product of generation arithmetic: the factor of a row of W, and the causal
// convolution of a delta net after it (ConvolveOutput).
#pragma once

#include "backend/cuda/ops/linear/linear.h"
#include "backend/cuda/ops/linear/resident.cuh"
#include "backend/cuda/ptx/device_math.cuh"

namespace nibble::cuda {

__device__ __forceinline__ float row_factor(const DeviceLinear& w, int row) {
  const float unscale = resident_unscale(w.format);
  if (w.layout == FactorLayout::row) return w.factors[row] * unscale;
  return w.layout == FactorLayout::scalar ? w.factors[0] * unscale : unscale;
}

/// The values that a thread needs to convolve one output, loaded while the product is computed.
struct ConvolveAhead {
  float weights[kConvolveTapsMax];
  float past[kConvolveTapsMax];
  float* out[2] = {nullptr, nullptr};  // addresses of the new state
};

/// Loads those values. Returns false for a row of padding.
__device__ __forceinline__ bool look_ahead(const ConvolveOutput& c, int row, int token,
                                           ConvolveAhead& to) {
  // These are loaded together; else each would be waited for alone.
  const int count = c.batch.row_count[token];
  const int64_t slot = c.batch.state_in[token];
  const int64_t slots[2] = {c.batch.snapshot_slot[token], c.batch.state_out[token]};
  if (count == 0) return false;
  const float* in = c.state.conv + slot * c.state.slot_stride + row;
  // Places beyond the taps hold something that convolve() does not use: nothing waits here.
#pragma unroll
  for (int j = 0; j < kConvolveTapsMax; ++j) {
    to.weights[j] = c.weights[row * c.taps + min(j, c.taps - 1)];
    to.past[j] = in[static_cast<int64_t>(max(min(j, c.taps - 2), 0)) * c.channels];
  }
#pragma unroll
  for (int k = 0; k < 2; ++k)
    to.out[k] = slots[k] < 0 ? nullptr : c.state.conv + slots[k] * c.state.slot_stride + row;
  return true;
}

/// Returns the sum of a convolution and stores its state, as convolve_kernel of delta_net.cu makes
/// them.
__device__ __forceinline__ float convolve(const ConvolveOutput& c, const ConvolveAhead& of,
                                          float x) {
  const int past = c.taps - 1;
  float sum = 0.0F;
#pragma unroll
  for (int j = 0; j < kConvolveTapsMax; ++j)
    if (j < past) sum = fmaf(of.weights[j], of.past[j], sum);
#pragma unroll
  for (int j = 0; j < kConvolveTapsMax; ++j)
    if (j == past) sum = fmaf(of.weights[j], x, sum);
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    if (of.out[k] == nullptr) continue;
#pragma unroll
    for (int j = 0; j + 1 < kConvolveTapsMax; ++j)
      if (j < past)
        of.out[k][static_cast<int64_t>(j) * c.channels] = j + 1 == past ? x : of.past[j + 1];
  }
  return silu(sum);
}

}  // namespace nibble::cuda
