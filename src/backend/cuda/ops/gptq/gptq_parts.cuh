// The kernels of GPTQ share this: half a warp works on a row, a lane for each column of a block of
// 16 or for each of 16 scales; and the arithmetic of codes, as nvfp4_block.inl.h has it in lanes.
#pragma once

#include <cuda_runtime.h>

#include "tensor/block_scales.h"

namespace nibble::cuda {

__device__ constexpr BlockScaleTables kScaleTables = make_block_scale_tables();

inline unsigned blocks_for(int64_t items, int each) {
  return static_cast<unsigned>((items + each - 1) / each);
}

/// The lanes that have a row. All of them call each function together.
struct HalfWarp {
  unsigned mask;
  int lane;

  __device__ HalfWarp()
      : mask(0xFFFFU << (threadIdx.x & 16U)), lane(static_cast<int>(threadIdx.x & 15U)) {}
  template <typename T>
  __device__ T from(T value, int source) const {
    return __shfl_sync(mask, value, source, 16);
  }
  __device__ int least(int value) const {
#pragma unroll
    for (int step = 8; step > 0; step /= 2)
      value = min(value, __shfl_xor_sync(mask, value, step, 16));
    return value;
  }
  /// Bit i: lane i says yes.
  __device__ unsigned votes(bool yes) const {
    return __ballot_sync(mask, yes) >> (threadIdx.x & 16U) & 0xFFFFU;
  }
  /// The first lane with the least value; none is negative.
  __device__ int least_lane(float value) const {
    const int bits = __float_as_int(value);  // ordered as the floats are
    return __ffs(static_cast<int>(votes(bits == least(bits)))) - 1;
  }
  __device__ void sync() const { __syncwarp(mask); }
};

/// Adding it to x >= 0 rounds x to the E2M1 grid.
__device__ inline float rounding_offset(float x) {
  const int bits = max(__float_as_int(x), 0x3F800000);
  return __int_as_float((bits & 0x7F800000) + (22 << 23));
}

/// The E2M1 magnitude nearest to x >= 0.
__device__ inline float nearest_magnitude(float x) {
  const float saturated = fminf(x, 6.0F);
  const float offset = rounding_offset(saturated);
  return (saturated + offset) - offset;
}

/// The value under a scale that is nearest to a weight. x: the weight's magnitude over the scale.
__device__ inline float nearest_value(float weight, float x, float scale) {
  return copysignf(nearest_magnitude(x) * scale, weight);
}

/// The E2M1 code of a weight under a scale; zero has no sign.
__device__ inline unsigned element_code(float weight, float scale) {
  const float x = fminf(fabsf(weight) / scale, 6.0F);
  const float offset = rounding_offset(x);
  const int rounded = __float_as_int(x + offset);
  const int magnitude = (rounded & 7) + 2 * ((__float_as_int(offset) >> 23) - (127 + 22));
  const int sign = magnitude != 0 && __float_as_int(weight) < 0 ? 8 : 0;
  return static_cast<unsigned>(magnitude | sign);
}

}  // namespace nibble::cuda
