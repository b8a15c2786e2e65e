// The formats of KV pages without scales, as kernels read and write them, one struct for each.
// Numbers are multiplied on tensor cores as BF16 or as F16, which holds E4M3 codes exactly.
//
// Operands come straight from memory: a lane reads 16 bytes of a line, and adjacent dimensions of
// one lane are spread over the K or M places of mma.m16n8k16 (attend_block.cuh). `chunk` is such a
// load.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/ptx/mma.cuh"
#include "model/kv_format.h"

namespace nibble::cuda {

__device__ __forceinline__ uint32_t to_f16_pair(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ uint32_t word_at(const uint4& v, int index) {
  return index == 0 ? v.x : index == 1 ? v.y : index == 2 ? v.z : v.w;
}

/// The scales that a format keeps beside its numbers: those of groups are multiplied into numbers
/// as they become operands, those of whole lines into scores and the weights of values.
enum class KvScales : uint8_t { none, groups, lines };

template <KvFormat kFormat>
struct KvElements;

/// F32 pages exist with activations f32 alone; kernels of plain F32 arithmetic read them.
template <>
struct KvElements<KvFormat::f32> {
  using Code = float;
  static constexpr KvScales kScales = KvScales::none;
  template <KvSide>
  static __device__ __forceinline__ float load(const uint8_t* line, const uint8_t*, int64_t i) {
    return reinterpret_cast<const float*>(line)[i];
  }
  static __device__ __forceinline__ void store(uint8_t* line, int64_t i, float x) {
    reinterpret_cast<float*>(line)[i] = x;
  }
};

template <>
struct KvElements<KvFormat::bf16> {
  using Code = uint16_t;
  static constexpr KvScales kScales = KvScales::none;
  template <KvSide>
  static __device__ __forceinline__ float load(const uint8_t* line, const uint8_t*, int64_t i) {
    return from_bf16(reinterpret_cast<const uint16_t*>(line)[i]);
  }
  static __device__ __forceinline__ void store(uint8_t* line, int64_t i, float x) {
    reinterpret_cast<uint16_t*>(line)[i] = to_bf16(x);
  }

  static constexpr Operands kOperands = Operands::bf16;
  /// BF16 has 8 bits, too few for the weights of a softmax: each is a sum of two operands.
  static constexpr int kWeightParts = 2;
  static constexpr int kChunkTiles = 4;  // of 16 dimensions, of the values in a chunk of 8 lanes
  /// True if pages are widened before they are stored in shared memory (flash_prefill.cu).
  static constexpr bool kWidens = false;

  /// The first returns two numbers as operands, the second what their rounding leaves.
  static __device__ __forceinline__ uint32_t pair(float low, float high) {
    return to_bf16_pair(low, high);
  }
  static __device__ __forceinline__ uint32_t rest(float low, float high, uint32_t pair) {
    return to_bf16_pair(low - low_bf16(pair), high - high_bf16(pair));
  }
  /// Makes the right operand of product s of scores from a lane's chunks of keys.
  static __device__ __forceinline__ void key_operand(const uint4* chunks, int s, uint32_t (&b)[2]) {
    b[0] = word_at(chunks[s / 2], 2 * (s % 2));
    b[1] = word_at(chunks[s / 2], 2 * (s % 2) + 1);
  }
  /// Returns the product s and the lane q that multiply dimensions d .. d + 3, as 4 s + q; d is a
  /// multiple of 4.
  static __device__ __forceinline__ int key_place(int d) {
    return 4 * (d / 32 * 2 + d % 8 / 4) + d % 32 / 8;
  }
  /// Makes the left operand of tile i of a result from a word of each of four tokens' chunks.
  static constexpr int value_chunk(int i) { return i / 4; }
  static constexpr int value_word(int i) { return i % 4; }
  static __device__ __forceinline__ void value_operand(const uint32_t (&t)[4], int,
                                                       uint32_t (&a)[4]) {
    a[0] = __byte_perm(t[0], t[1], 0x5410);
    a[1] = __byte_perm(t[0], t[1], 0x7632);
    a[2] = __byte_perm(t[2], t[3], 0x5410);
    a[3] = __byte_perm(t[2], t[3], 0x7632);
  }
  /// The first of the two dimensions of tile i that lane group g has.
  static __device__ __forceinline__ int out_dims(int i, int g) {
    return i / 4 * 64 + g * 8 + i % 4 * 2;
  }
};

template <>
struct KvElements<KvFormat::fp8> {
  using Code = uint8_t;
  static constexpr KvScales kScales = KvScales::none;
  template <KvSide>
  static __device__ __forceinline__ float load(const uint8_t* line, const uint8_t*, int64_t i) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(line[i], __NV_E4M3)));
  }
  static __device__ __forceinline__ void store(uint8_t* line, int64_t i, float x) {
    line[i] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  }

  static constexpr Operands kOperands = Operands::f16;
  static constexpr int kWeightParts = 1;
  static constexpr int kChunkTiles = 8;
  static constexpr bool kWidens = true;

  static __device__ __forceinline__ uint32_t pair(float low, float high) {
    return to_f16_pair(low, high);
  }
  static __device__ __forceinline__ uint32_t rest(float low, float high, uint32_t pair) {
    const float2 taken = __half22float2(*reinterpret_cast<const __half2*>(&pair));
    return to_f16_pair(low - taken.x, high - taken.y);
  }
  static __device__ __forceinline__ void key_operand(const uint4* chunks, int s, uint32_t (&b)[2]) {
    const uint32_t codes = word_at(chunks[s / 4], s % 4);
    b[0] = to_f16(codes & 0xFFFFU);
    b[1] = to_f16(codes >> 16);
  }
  static __device__ __forceinline__ int key_place(int d) {
    return 4 * (d / 64 * 4 + d % 16 / 4) + d % 64 / 16;
  }
  static constexpr int value_chunk(int i) { return i / 8; }
  static constexpr int value_word(int i) { return i % 8 / 2; }
  static __device__ __forceinline__ void value_operand(const uint32_t (&t)[4], int i,
                                                       uint32_t (&a)[4]) {
    const unsigned pick = i % 2 == 0 ? 0x5140 : 0x7362;
    const uint32_t low = __byte_perm(t[0], t[1], pick);
    const uint32_t high = __byte_perm(t[2], t[3], pick);
    a[0] = to_f16(low & 0xFFFFU);
    a[1] = to_f16(low >> 16);
    a[2] = to_f16(high & 0xFFFFU);
    a[3] = to_f16(high >> 16);
  }
  static __device__ __forceinline__ int out_dims(int i, int g) {
    return i / 8 * 128 + g * 16 + i % 8 * 2;
  }
  /// Makes BF16 pairs of four codes, which it holds exactly, for the operands of prompts.
  template <KvSide>
  static __device__ __forceinline__ void widen(uint32_t codes, uint32_t, int, uint32_t& first,
                                               uint32_t& second) {
    const float2 low = __half22float2(__half2(half_of(codes & 0xFFFFU)));
    const float2 high = __half22float2(__half2(half_of(codes >> 16)));
    first = to_bf16_pair(low.x, low.y);
    second = to_bf16_pair(high.x, high.y);
  }

 private:
  static __device__ __forceinline__ __half2_raw half_of(uint32_t codes) {
    return __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3);
  }
  /// Returns two codes as F16, the first in the low half.
  static __device__ __forceinline__ uint32_t to_f16(uint32_t codes) {
    const __half2_raw wide = half_of(codes);
    return static_cast<uint32_t>(wide.x) | static_cast<uint32_t>(wide.y) << 16;
  }
};

}  // namespace nibble::cuda
