// The reads of generation attention from its cache: groups of 8 tokens of keys as right operands of
// mma.m16n8k16, of 16 tokens of values as transposed left ones, straight from memory into
// registers.
//
// Lane 4 g + q of a warp. Keys: token g, 16 bytes at 64 c + 16 q of chunk c. Values: tokens 2q,
// 2q+1, 2q+8, 2q+9, 16 bytes at 128 c + 16 g. The order of dimensions is that of kv_elements.cuh;
// the queries and the result follow it. Scores then lie as the right operand of the second product
// wants the weights. Scales of groups are loaded where their numbers are, what a whole line shares
// where its score is.
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

/// The lines of a step's tokens, from the first on.
struct KvStepLines {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  int code_bytes = 0;   // of a line
  int scale_bytes = 0;  // of a line
};

/// A KvStep has the keys and values of one step of a warp, kGroups groups of 16 tokens. kDim is
/// head_dim, or (not kExact) the next larger of 64, 128, 256.
template <KvFormat kFormat, int kDim, bool kExact>
struct KvStep {
  using Elements = KvElements<kFormat>;
  static constexpr bool kGroupScales = Elements::kScales == KvScales::groups;
  static constexpr bool kLineScales = Elements::kScales == KvScales::lines;
  static constexpr int kBytes = static_cast<int>(kv_code_bytes(kFormat, kDim));
  static constexpr int kGroups = kBytes == 512 ? 1 : 2;  // so that as many bytes are in flight
  static constexpr int kTokens = 16 * kGroups;
  static constexpr int kKeyChunks = (kBytes + 63) / 64;
  static constexpr int kValueChunks = (kBytes + 127) / 128;
  static constexpr int kTiles = kValueChunks * Elements::kChunkTiles;  // of 16 dims
  static constexpr int kProducts = kKeyChunks * 64 / kBytes * (kDim / 16);
  static constexpr int kLineBytes = 128 * kValueChunks;  // of a line in shared memory, zero beyond
  static constexpr int kScaleBytes = 16;                 // likewise, of its scales

  uint4 keys[2 * kGroups][kKeyChunks];  // of each 8 tokens
  uint4 values[kGroups][4][kValueChunks];
  // A word has the scales of a chunk's groups; or it has the factors of tokens 8 e + 2 q and the
  // next, and of each value its step and least number.
  uint32_t key_scales[2 * kGroups][kGroupScales ? kKeyChunks : 1];
  uint32_t value_scales[kGroups][4][kGroupScales ? kValueChunks : 1];

  /// The last of `tokens` (1..kTokens) stands in for those past the end. Half 0 or 1 of the tokens.
  __device__ __forceinline__ void load_keys(const KvStepLines& from, int tokens, int half) {
#pragma unroll
    for (int e = half * kGroups; e < (half + 1) * kGroups; ++e) {
      const int token = min(g() + 8 * e, tokens - 1);
      const uint8_t* line = from.codes + token * from.code_bytes;
#pragma unroll
      for (int c = 0; c < kKeyChunks; ++c) {
        keys[e][c] = load(line, 64 * c + 16 * q(), from.code_bytes);
        if constexpr (kGroupScales) key_scales[e][c] = load_scales(from, token, 8 * c + 2 * q());
      }
      if constexpr (kLineScales)
        key_scales[e][0] = reinterpret_cast<const uint32_t*>(from.scales)[4 * e + q()];
    }
  }
  /// Half 0 or 1: of the tokens if there are two groups, else of the dimensions.
  __device__ __forceinline__ void load_values(const KvStepLines& from, int tokens, int half) {
    const int group = kGroups == 2 ? half : 0;
    const int begin = kGroups == 2 ? 0 : half * kValueChunks / 2;
    const int end = kGroups == 2 ? kValueChunks : (half + 1) * kValueChunks / 2;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const int token = min(value_token(group, t), tokens - 1);
      const uint8_t* line = from.codes + token * from.code_bytes;
#pragma unroll
      for (int c = begin; c < end; ++c) {
        values[group][t][c] = load(line, 128 * c + 16 * g(), from.code_bytes);
        if constexpr (kGroupScales)
          value_scales[group][t][c] = load_scales(from, token, 16 * c + 2 * g());
      }
    }
    if constexpr (kLineScales) {
      if (half == 0) load_value_lines(from);
    }
  }

  /// Puts the line `code` in the place of the tokens from `token` of the step on.
  __device__ __forceinline__ void replace_keys(const uint8_t* code, const uint8_t* scales,
                                               int token) {
#pragma unroll
    for (int e = 0; e < 2 * kGroups; ++e) {
      if constexpr (kLineScales) {
        const uint32_t own = *reinterpret_cast<const uint16_t*>(scales);
        if (8 * e + 2 * q() == token) key_scales[e][0] = own;
        if (8 * e + 2 * q() + 1 == token)
          key_scales[e][0] = (key_scales[e][0] & 0xFFFFU) | own << 16;
      }
#pragma unroll
      for (int c = 0; c < kKeyChunks; ++c) {
        if (g() + 8 * e < token) continue;
        keys[e][c] = *reinterpret_cast<const uint4*>(code + 64 * c + 16 * q());
        if constexpr (kGroupScales)
          key_scales[e][c] = *reinterpret_cast<const uint16_t*>(scales + 8 * c + 2 * q());
      }
    }
  }
  /// Does the same for a half of the values, as load_values() divides them.
  __device__ __forceinline__ void replace_values(const uint8_t* code, const uint8_t* scales,
                                                 int token, int half) {
    const int group = kGroups == 2 ? half : 0;
    const int begin = kGroups == 2 ? 0 : half * kValueChunks / 2;
    const int end = kGroups == 2 ? kValueChunks : (half + 1) * kValueChunks / 2;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      if (value_token(group, t) < token) continue;
#pragma unroll
      for (int c = begin; c < end; ++c) {
        values[group][t][c] = *reinterpret_cast<const uint4*>(code + 128 * c + 16 * g());
        if constexpr (kGroupScales)
          value_scales[group][t][c] = *reinterpret_cast<const uint16_t*>(scales + 16 * c + 2 * g());
      }
    }
    if constexpr (kLineScales) {
      if (half == 0) replace_value_lines(scales, token);
    }
  }

  /// Makes the right operand of product s of the scores of 8 tokens.
  __device__ __forceinline__ void key_operand(int eight, int s, uint32_t (&b)[2]) const {
    if constexpr (kGroupScales)
      Elements::key_operand(keys[eight], key_scales[eight], s, b);
    else
      Elements::key_operand(keys[eight], s, b);
  }
  /// Makes the left operand of tile i of a group's result; its lane has dimensions out_dims(i) and
  /// the next.
  __device__ __forceinline__ void value_operand(int group, int i, uint32_t (&a)[4]) const {
    uint32_t t[4];
    uint32_t scales[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      t[k] = word_at(values[group][k][Elements::value_chunk(i)], Elements::value_word(i));
      if constexpr (kGroupScales) scales[k] = value_scales[group][k][Elements::value_chunk(i)];
    }
    if constexpr (kGroupScales)
      Elements::value_operand(t, scales, i, a);
    else
      Elements::value_operand(t, i, a);
  }
  /// The factors of the keys of tokens 8 e + 2 q and the next, of a format whose lines share one.
  __device__ __forceinline__ float2 key_factors(int e) const { return f16_pair(key_scales[e][0]); }
  /// Step and least number of token 8 e + 2 q + i: those of a group's value_token(2 (e % 2) + i).
  __device__ __forceinline__ float2 value_line(int e, int i) const {
    return f16_pair(value_scales[e / 2][2 * (e % 2) + i][0]);
  }

 private:
  /// The softmax needs them of all tokens at once.
  __device__ __forceinline__ void load_value_lines(const KvStepLines& from) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int t = 0; t < 4; ++t)
        value_scales[group][t][0] =
            reinterpret_cast<const uint32_t*>(from.scales)[value_token(group, t)];
  }
  __device__ __forceinline__ void replace_value_lines(const uint8_t* scales, int token) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int t = 0; t < 4; ++t)
        if (value_token(group, t) >= token)
          value_scales[group][t][0] = *reinterpret_cast<const uint32_t*>(scales);
  }
  static __device__ __forceinline__ int g() { return static_cast<int>(threadIdx.x) % 32 / 4; }
  static __device__ __forceinline__ int q() { return static_cast<int>(threadIdx.x) % 4; }
  static __device__ __forceinline__ int value_token(int group, int t) {
    return 16 * group + 2 * q() + t % 2 + t / 2 * 8;
  }
  static __device__ __forceinline__ uint4 load(const uint8_t* line, int at, int bytes) {
    if constexpr (!kExact) return load_16_bytes_within(line, at, bytes);
    if constexpr (kBytes % 128 != 0)
      if (at >= kBytes) return make_uint4(0, 0, 0, 0);
    return load_16_in_place(line + at);
  }
  /// Two scales of a line, from byte `at` on; those beyond its end are zero.
  static __device__ __forceinline__ uint32_t load_scales(const KvStepLines& from, int token,
                                                         int at) {
    const uint8_t* line = from.scales + token * from.scale_bytes;
    if constexpr (kExact)
      return at < from.scale_bytes ? *reinterpret_cast<const uint16_t*>(line + at) : 0U;
    const uint32_t low = at < from.scale_bytes ? line[at] : 0U;
    return low | (at + 1 < from.scale_bytes ? uint32_t{line[at + 1]} << 8 : 0U);
  }
};

}  // namespace nibble::cuda
