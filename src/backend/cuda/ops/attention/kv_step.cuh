// The reads of generation attention from its cache: groups of 8 tokens of keys as right operands of
// mma.m16n8k16, of 16 tokens of values as transposed left ones, straight from memory into
// registers.
//
// Lane 4 g + q of a warp. Keys: token g, 16 bytes at 64 c + 16 q of chunk c. Values: tokens 2q,
// 2q+1, 2q+8, 2q+9, 16 bytes at 128 c + 16 g. The order of dimensions is that of kv_elements.cuh;
// the queries and the result follow it. Scores then lie as the right operand of the second product
// wants the weights.
#pragma once

#include <climits>

#include "backend/cuda/ops/attention/kv_elements.cuh"
#include "backend/cuda/ptx/copy.cuh"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

/// Loads 16 bytes at `at` of a line of `bytes` bytes that begins at any address; bytes beyond its
/// end are zero.
__device__ __forceinline__ uint4 load_16_bytes_within(const uint8_t* line, int at, int bytes) {
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i)
    if (at + i < bytes) words[i / 4] |= static_cast<uint32_t>(line[at + i]) << 8 * (i % 4);
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/// A KvStep has the keys and values of one step of a warp, kGroups groups of 16 tokens. kDim is
/// head_dim, or (not kExact) the next larger of 64, 128, 256.
template <KvFormat kFormat, int kDim, bool kExact>
struct KvStep {
  using Elements = KvElements<kFormat>;
  static constexpr int kBytes = static_cast<int>(kv_line_bytes(kFormat, kDim));
  static constexpr int kGroups = kBytes == 512 ? 1 : 2;  // so that as many bytes are in flight
  static constexpr int kTokens = 16 * kGroups;
  static constexpr int kKeyChunks = kBytes / 64;
  static constexpr int kValueChunks = (kBytes + 127) / 128;
  static constexpr int kTiles = kValueChunks * Elements::kChunkTiles;  // of 16 dims
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
  /// Does the same for a half of the values, as load_values() divides them.
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

  /// Makes the right operand of product s of the scores of 8 tokens.
  __device__ __forceinline__ void key_operand(int eight, int s, uint32_t (&b)[2]) const {
    Elements::key_operand(keys[eight], s, b);
  }
  /// Makes the left operand of tile i of a group's result; its lane has dimensions out_dims(i) and
  /// the next.
  __device__ __forceinline__ void value_operand(int group, int i, uint32_t (&a)[4]) const {
    uint32_t t[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      t[k] = word_at(values[group][k][Elements::value_chunk(i)], Elements::value_word(i));
    Elements::value_operand(t, i, a);
  }

 private:
  static __device__ __forceinline__ uint4 load(const uint8_t* line, int at, int bytes) {
    if constexpr (!kExact) return load_16_bytes_within(line, at, bytes);
    if constexpr (kBytes % 128 != 0)
      if (at >= kBytes) return make_uint4(0, 0, 0, 0);
    return load_16_in_place(line + at);
  }
};

}  // namespace nibble::cuda
