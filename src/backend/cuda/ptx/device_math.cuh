// Small device functions all kernels share: sums over a warp or a block in a fixed order, and
// the hand-over to the next kernel of a stream.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/ptx/bf16.cuh"

namespace nibble::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

/// Waits until the results of the kernels before are visible, then lets the next kernel's blocks
/// start (they run up to their own wait). A kernel reads weights before this, activations after.
__device__ __forceinline__ void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Reads a kernel's parameters once, all lines at the same time: where they are used, each line
/// would be waited for alone. `parameters`: a __grid_constant__.
template <typename T>
__device__ __forceinline__ void touch(const T& parameters) {
  constexpr int kLine = 16;  // words
  uint32_t zero;
  asm volatile("mov.u32 %0, 0;" : "=r"(zero));
  const auto* words = reinterpret_cast<const uint32_t*>(&parameters);
  uint32_t all = 0;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / 4); i += kLine) all |= words[i + zero];
  asm volatile("" ::"r"(all));
}

/// The place of column c of an input of generation arithmetic in its row: every 8 columns are
/// stored as 0 4 1 5 2 6 3 7, the pairs of code_words.h.
__device__ __forceinline__ int x_place(int column) {
  return (column & ~7) | (column & 3) << 1 | (column >> 2 & 1);
}

__device__ __forceinline__ float sum_of_squares(const float4& v) {
  return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, 0.0F))));
}
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}
/// The same over the four lanes 4 g .. 4 g + 3, which share a row of an mma fragment.
__device__ __forceinline__ float quad_sum(float x) {
#pragma unroll
  for (int step = 1; step < 4; step *= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}
__device__ __forceinline__ float quad_max(float x) {
#pragma unroll
  for (int step = 1; step < 4; step *= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

/// Sum over a block of kWarps warps; the same bits in every thread. `scratch`: kWarps floats that
/// nobody uses until the next barrier after the call.
template <int kWarps>
__device__ __forceinline__ float block_sum(float x, float* scratch) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0.0F;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += scratch[w];
  return total;
}

/// Returns the largest of what the kThreads threads of a block bring. Once in a kernel.
template <int kThreads>
__device__ __forceinline__ uint32_t block_largest(uint32_t bits) {
  __shared__ uint32_t of_warp[kThreads / 32];
  bits = __reduce_max_sync(kAllLanes, bits);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = bits;
  __syncthreads();
  for (const uint32_t other : of_warp) bits = max(bits, other);
  return bits;
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }
__device__ __forceinline__ float silu(float x) { return x / (1.0F + expf(-x)); }

}  // namespace nibble::cuda
