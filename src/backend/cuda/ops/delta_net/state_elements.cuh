// The numbers of a recurrent state as kernels take them from memory and put them back: F32 as they
// are; BF16 widened, and rounded to nearest even. Arithmetic on them is F32.
#pragma once

#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

/// Returns the address of element `at` of a state. T is float, or uint16_t for BF16.
template <typename T>
__device__ __forceinline__ T* state_at(const StateView& view, int64_t slot, int64_t at) {
  constexpr int64_t kFloat = sizeof(float) / sizeof(T);
  return static_cast<T*>(view.state) + slot * view.slot_stride * kFloat + at;
}

__device__ __forceinline__ float load_number(const float* from) { return *from; }
__device__ __forceinline__ float load_number(const uint16_t* from) { return from_bf16(*from); }
__device__ __forceinline__ void store_number(float* to, float x) { *to = x; }
__device__ __forceinline__ void store_number(uint16_t* to, float x) { *to = to_bf16(x); }

/// These load and store two numbers, aligned to both.
__device__ __forceinline__ float2 load_two(const float* from) {
  return *reinterpret_cast<const float2*>(from);
}
__device__ __forceinline__ float2 load_two(const uint16_t* from) {
  const uint32_t pair = *reinterpret_cast<const uint32_t*>(from);
  return make_float2(low_bf16(pair), high_bf16(pair));
}
__device__ __forceinline__ void store_two(float* to, float2 x) {
  *reinterpret_cast<float2*>(to) = x;
}
__device__ __forceinline__ void store_two(uint16_t* to, float2 x) {
  *reinterpret_cast<uint32_t*>(to) = to_bf16_pair(x.x, x.y);
}

/// These load and store four numbers, aligned to all.
__device__ __forceinline__ float4 load_four(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}
__device__ __forceinline__ float4 load_four(const uint16_t* from) {
  const uint2 v = *reinterpret_cast<const uint2*>(from);
  return make_float4(low_bf16(v.x), high_bf16(v.x), low_bf16(v.y), high_bf16(v.y));
}
__device__ __forceinline__ void store_four(float* to, const float4& x) {
  *reinterpret_cast<float4*>(to) = x;
}
__device__ __forceinline__ void store_four(uint16_t* to, const float4& x) {
  *reinterpret_cast<uint2*>(to) = make_uint2(to_bf16_pair(x.x, x.y), to_bf16_pair(x.z, x.w));
}

/// The value that a state of T keeps of x.
template <typename T>
__device__ __forceinline__ float kept(float x) {
  if constexpr (sizeof(T) == sizeof(float)) return x;
  return from_bf16(to_bf16(x));
}

}  // namespace nibble::cuda
