// Small functions that the gradient's kernels share: indices, sums over a warp, the gates.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace nibble::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kRowThreads = 256;

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ __forceinline__ int64_t thread_index() {
  return int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int warp_index() { return static_cast<int>(thread_index() / kWarp); }

__device__ __forceinline__ double warp_sum_double(double x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  return x;
}
__device__ __forceinline__ float warp_sum_float(float x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  return x;
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }
__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }
/// The derivative of silu.
__device__ __forceinline__ float silu_slope(float x) {
  const float s = sigmoid(x);
  return s * (1.0F + x * (1.0F - s));
}

inline unsigned blocks_of_threads(int64_t threads) {
  return static_cast<unsigned>((threads + kRowThreads - 1) / kRowThreads);
}
inline unsigned blocks_of_warps(int64_t warps) { return blocks_of_threads(warps * kWarp); }

}  // namespace nibble::cuda
