// RMS norm of one row by one block, as the tail of the kernels that finish a row.
#pragma once

#include "backend/cuda/device_math.cuh"

namespace nibble::cuda {

inline constexpr int kNormThreads = 256;

/// x = bf16(h * rsqrt(mean(h^2) + eps) * w), and the same in F32 to `wide` unless null. `h`: this
/// row in memory, written by this very block (each thread reads what it wrote: same stride).
/// `squares`: this thread's share of sum(h^2). `scratch`: 8 floats.
__device__ __forceinline__ void norm_row(const float* h, float squares, int hidden, const float* w,
                                         float eps, uint16_t* x, float* wide, float* scratch) {
  const float total = block_sum<kNormThreads / 32>(squares, scratch);
  const float scale = rsqrtf(total / static_cast<float>(hidden) + eps);
  for (int i = threadIdx.x; i < hidden; i += kNormThreads) {
    const float y = h[i] * scale * w[i];
    x[i] = to_bf16(y);
    if (wide != nullptr) wide[i] = y;
  }
}

}  // namespace nibble::cuda
