// Generation attention's reads of its cache: groups of 8 tokens of keys as right operands of
// mma.m16n8k16, of 16 tokens of values as transposed left ones, straight from memory into
// registers. BF16 codes are multiplied as BF16, E4M3 codes as F16, which holds them exactly.
//
// Lane 4 g + q of a warp. Keys: token g, 16 bytes at 64 c + 16 q of chunk c. Values: tokens 2q,
// 2q+1, 2q+8, 2q+9, 16 bytes at 128 c + 16 g. Neighbouring dimensions of one lane are spread over
// the K or M places of the instruction; the queries and the result follow. Scores then lie as the
// right operand of the second product wants the weights.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <climits>

#include "backend/cuda/ptx/copy.cuh"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/ptx/mma.cuh"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

inline constexpr int kAttendHeads = 8;  // query heads of one pass over the keys

/// Two numbers as the operand type of a cache format.
template <KvFormat kFormat>
__device__ __forceinline__ uint32_t operand_pair(float low, float high) {
  if constexpr (kFormat == KvFormat::bf16) return to_bf16_pair(low, high);
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

/// The remainder of that rounding, as another pair.
template <KvFormat kFormat>
__device__ __forceinline__ uint32_t operand_rest(float low, float high, uint32_t pair) {
  if constexpr (kFormat == KvFormat::bf16)
    return to_bf16_pair(low - low_bf16(pair), high - high_bf16(pair));
  const float2 taken = __half22float2(*reinterpret_cast<const __half2*>(&pair));
  return operand_pair<kFormat>(low - taken.x, high - taken.y);
}

/// Two E4M3 codes as F16, the first in the low half.
__device__ __forceinline__ uint32_t widen_e4m3_pair(uint32_t codes) {
  const __half2_raw wide =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3);
  return static_cast<uint32_t>(wide.x) | static_cast<uint32_t>(wide.y) << 16;
}

/// A number as the cache keeps it.
template <KvFormat kFormat>
__device__ __forceinline__ void store_code(uint8_t* base, int64_t element, float x) {
  if constexpr (kFormat == KvFormat::bf16) {
    reinterpret_cast<uint16_t*>(base)[element] = to_bf16(x);
  } else if constexpr (kFormat == KvFormat::f32) {
    reinterpret_cast<float*>(base)[element] = x;
  } else {
    base[element] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  }
}

/// 16 bytes at `at` of a line of `bytes` bytes at any address; zero beyond its end.
__device__ __forceinline__ uint4 load_16_bytes_within(const uint8_t* line, int at, int bytes) {
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i)
    if (at + i < bytes) words[i / 4] |= static_cast<uint32_t>(line[at + i]) << 8 * (i % 4);
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/// Keys and values of one step of a warp: kGroups groups of 16 tokens. kDim: head_dim, or (not
/// kExact) the next larger 64, 128, 256.
template <KvFormat kFormat, int kDim, bool kExact>
struct KvStep {
  static constexpr int kBytes = static_cast<int>(kv_line_bytes(kFormat, kDim));
  static constexpr int kGroups = kBytes == 512 ? 1 : 2;  // so that as many bytes are on their way
  static constexpr int kTokens = 16 * kGroups;
  static constexpr int kKeyChunks = kBytes / 64;
  static constexpr int kValueChunks = (kBytes + 127) / 128;
  static constexpr int kTiles = kValueChunks * (kFormat == KvFormat::bf16 ? 4 : 8);  // of 16 dims
  static constexpr int kProducts = kDim / 16;
  static constexpr int kLineBytes = 128 * kValueChunks;  // of a line in shared memory, zero beyond

  uint4 keys[2 * kGroups][kKeyChunks];  // of each 8 tokens
  uint4 values[kGroups][4][kValueChunks];

  /// `line` of the first token; the last of `tokens` (1..kTokens) stands in for those past the end.
  /// Half 0 or 1 of the tokens.
  __device__ __forceinline__ void load_keys(const uint8_t* line, int64_t line_bytes, int tokens,
                                            int half) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int e = half * kGroups; e < (half + 1) * kGroups; ++e) {
      const uint8_t* from = line + min(g + 8 * e, tokens - 1) * line_bytes;
#pragma unroll
      for (int c = 0; c < kKeyChunks; ++c)
        keys[e][c] = load(from, 64 * c + 16 * q, static_cast<int>(line_bytes));
    }
  }
  /// Half 0 or 1: of the tokens if there are two groups, else of the dimensions.
  __device__ __forceinline__ void load_values(const uint8_t* line, int64_t line_bytes, int tokens,
                                              int half) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
    const int group = kGroups == 2 ? half : 0;
    const int begin = kGroups == 2 ? 0 : half * kValueChunks / 2;
    const int end = kGroups == 2 ? kValueChunks : (half + 1) * kValueChunks / 2;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const int token = 16 * group + 2 * q + t % 2 + t / 2 * 8;
      const uint8_t* from = line + min(token, tokens - 1) * line_bytes;
#pragma unroll
      for (int c = begin; c < end; ++c)
        values[group][t][c] = load(from, 128 * c + 16 * g, static_cast<int>(line_bytes));
    }
  }

  /// Puts the line `code` in the place of the tokens from `token` of the step on.
  __device__ __forceinline__ void replace_keys(const uint8_t* code, int token) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int e = 0; e < 2 * kGroups; ++e)
#pragma unroll
      for (int c = 0; c < kKeyChunks; ++c)
        if (g + 8 * e >= token)
          keys[e][c] = *reinterpret_cast<const uint4*>(code + 64 * c + 16 * q);
  }
  /// The same for a half of the values, as load_values().
  __device__ __forceinline__ void replace_values(const uint8_t* code, int token, int half) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
    const int group = kGroups == 2 ? half : 0;
    const int begin = kGroups == 2 ? 0 : half * kValueChunks / 2;
    const int end = kGroups == 2 ? kValueChunks : (half + 1) * kValueChunks / 2;
#pragma unroll
    for (int t = 0; t < 4; ++t)
#pragma unroll
      for (int c = begin; c < end; ++c)
        if (16 * group + 2 * q + t % 2 + t / 2 * 8 >= token)
          values[group][t][c] = *reinterpret_cast<const uint4*>(code + 128 * c + 16 * g);
  }

  /// Right operand of product s of the scores of 8 tokens; its lane's dimensions: key_place().
  __device__ __forceinline__ void key_operand(int eight, int s, uint32_t (&b)[2]) const {
    if constexpr (kFormat == KvFormat::bf16) {
      b[0] = word(keys[eight][s / 2], 2 * (s % 2));
      b[1] = word(keys[eight][s / 2], 2 * (s % 2) + 1);
    } else {
      const uint32_t codes = word(keys[eight][s / 4], s % 4);
      b[0] = widen_e4m3_pair(codes & 0xFFFFU);
      b[1] = widen_e4m3_pair(codes >> 16);
    }
  }
  /// Product s and lane q that multiply dimensions d .. d + 3, d a multiple of 4, as 4 s + q.
  static __device__ __forceinline__ int key_place(int d) {
    return kFormat == KvFormat::bf16 ? 4 * (d / 32 * 2 + d % 8 / 4) + d % 32 / 8
                                     : 4 * (d / 64 * 4 + d % 16 / 4) + d % 64 / 16;
  }

  /// Left operand of tile i of a group's result; its lane's dimensions are out_dims(i) and the
  /// next.
  __device__ __forceinline__ void value_operand(int group, int i, uint32_t (&a)[4]) const {
    const int c = kFormat == KvFormat::bf16 ? i / 4 : i / 8;
    const int w = kFormat == KvFormat::bf16 ? i % 4 : i % 8 / 2;
    uint32_t t[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) t[k] = word(values[group][k][c], w);
    if constexpr (kFormat == KvFormat::bf16) {
      a[0] = __byte_perm(t[0], t[1], 0x5410);
      a[1] = __byte_perm(t[0], t[1], 0x7632);
      a[2] = __byte_perm(t[2], t[3], 0x5410);
      a[3] = __byte_perm(t[2], t[3], 0x7632);
    } else {
      const unsigned pick = i % 2 == 0 ? 0x5140 : 0x7362;
      const uint32_t low = __byte_perm(t[0], t[1], pick);
      const uint32_t high = __byte_perm(t[2], t[3], pick);
      a[0] = widen_e4m3_pair(low & 0xFFFFU);
      a[1] = widen_e4m3_pair(low >> 16);
      a[2] = widen_e4m3_pair(high & 0xFFFFU);
      a[3] = widen_e4m3_pair(high >> 16);
    }
  }
  static __device__ __forceinline__ int out_dims(int i, int g) {
    return kFormat == KvFormat::bf16 ? i / 4 * 64 + g * 8 + i % 4 * 2
                                     : i / 8 * 128 + g * 16 + i % 8 * 2;
  }

 private:
  static __device__ __forceinline__ uint4 load(const uint8_t* line, int at, int bytes) {
    if constexpr (!kExact) return load_16_bytes_within(line, at, bytes);
    if constexpr (kBytes % 128 != 0)
      if (at >= kBytes) return make_uint4(0, 0, 0, 0);
    return load_16_in_place(line + at);
  }
  static __device__ __forceinline__ uint32_t word(const uint4& v, int index) {
    return index == 0 ? v.x : index == 1 ? v.y : index == 2 ? v.z : v.w;
  }
};

}  // namespace nibble::cuda
