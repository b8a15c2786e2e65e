// One block of 16 weights to E2M1 codes and an E4M3 scale, in GCC vectors of 16 lanes, so that one
// text serves every instruction set with the same bytes (-ffp-contract=off: no fused operations).
//
// The search. Lanes are 16 consecutive scale codes, from the one at or below amax/8.5 (at least 1);
// each weight is broadcast and its squared error added in turn. Why 16 codes are as good as all
// 126 (u: weights, s: a scale, x = amax/s):
// - Below: at x >= 8.5 the scale 2s, always a code here, is strictly better. For |u| <= 6s the
//   finer grid gains at most s^2/4 a weight, 3.75 s^2 in 15; the largest weight saturates at 6s and
//   loses (x-6)^2 - (x-8)^2 >= 6 s^2 (more beyond x = 9). The margin dwarfs F32 rounding.
// - Above: at x <= 3.5 no weight uses 4s or 6s, and the grid of s/2 contains all other values of
//   the grid of s, so s/2 is never worse, weight by weight; F32 sums are monotone, so that holds
//   for the computed sums too. Halving is code - 8 and exact for codes >= 16. Code lo+16 has
//   amax/s <= 3.5, so every code above the window reaches it by steps of 8, none from below 16.
// - The lowest code wins a tie, which the second point needs.
// Errors are exact up to their squares: 20 significant bits of u (all of BF16 and F16) against 6 of
// q*s; and 20 bits cannot sit so close to a rounding boundary that u * (1/s) misses the nearer
// code.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "quantize/rounding/nvfp4_round.h"
#include "tensor/block_scales.h"

namespace nibble::detail {

/// W lanes: 16 for AVX-512, 8 for AVX2, 4 elsewhere. The bytes do not depend on it.
template <int W>
struct Lanes;
template <>
struct Lanes<4> {
  typedef float Floats __attribute__((vector_size(16)));
  typedef int32_t Ints __attribute__((vector_size(16)));
};
template <>
struct Lanes<8> {
  typedef float Floats __attribute__((vector_size(32)));
  typedef int32_t Ints __attribute__((vector_size(32)));
};
template <>
struct Lanes<16> {
  typedef float Floats __attribute__((vector_size(64)));
  typedef int32_t Ints __attribute__((vector_size(64)));
};
template <int W>
using Floats = typename Lanes<W>::Floats;
template <int W>
using Ints = typename Lanes<W>::Ints;

extern const BlockScaleTables kBlockTables;

/// One row as F32, times `factor` (a power of two).
void load_row(const TensorView& weights, int64_t row, float factor, std::span<float> out);

#define NIBBLE_INLINE inline __attribute__((always_inline))

/// 2^22 * 2^e for x in [2^e, 2^(e+1)), e >= 0: adding it rounds x to the E2M1 grid, ties to even.
template <int W>
NIBBLE_INLINE void rounding_offset(const Floats<W>& x, Ints<W>& offset) {
  const Ints<W> bits = (Ints<W>)x, one = Ints<W>{} + 0x3F800000;  // ordered as the floats are
  offset = ((bits > one ? bits : one) & 0x7F800000) + (22 << 23);
}

/// x = min(x, 6), for x >= 0: as integers, which is one instruction.
template <int W>
NIBBLE_INLINE void saturate(Floats<W>& x) {
  const Ints<W> bits = (Ints<W>)x, six = Ints<W>{} + 0x40C00000;
  x = (Floats<W>)(bits < six ? bits : six);
}

/// Squared errors of the block `exact` under W scale codes from `lo` on.
template <int W>
NIBBLE_INLINE void window_errors(const float* exact, int lo, float* out) {
  Floats<W> scale, reciprocal;
  std::memcpy(&scale, &kBlockTables.scale[static_cast<size_t>(lo)], sizeof scale);
  std::memcpy(&reciprocal, &kBlockTables.reciprocal[static_cast<size_t>(lo)], sizeof reciprocal);
  Floats<W> errors = {};
  for (int i = 0; i < 16; ++i) {
    const Floats<W> u = Floats<W>{} + exact[i];
    Floats<W> x = u * reciprocal;
    saturate<W>(x);
    Ints<W> offset;
    rounding_offset<W>(x, offset);
    const Floats<W> q = (x + (Floats<W>)offset) - (Floats<W>)offset;
    const Floats<W> error = u - q * scale;
    errors += error * error;
  }
  std::memcpy(out, &errors, sizeof errors);
}

/// Least of 16 integers.
template <int W>
NIBBLE_INLINE int32_t reduce_min(const int32_t* values) {
  Ints<W> least, lanes;
  std::memcpy(&least, values, sizeof least);
  for (int i = W; i < 16; i += W) {
    Ints<W> more;
    std::memcpy(&more, values + i, sizeof more);
    least = more < least ? more : least;
  }
  for (int i = 0; i < W; ++i) lanes[i] = i;
  for (int step = W / 2; step > 0; step /= 2) {
    const Ints<W> other = __builtin_shuffle(least, lanes ^ step);
    least = other < least ? other : least;
  }
  return least[0];
}

/// The first of 16 floats, none negative, with the least value.
template <int W>
NIBBLE_INLINE int least_lane(const float* values) {
  int32_t bits[16];
  std::memcpy(bits, values, sizeof bits);  // ordered as the floats are
  const int32_t least = reduce_min<W>(bits);
  for (int i = 0; i < 16; ++i) bits[i] = bits[i] == least ? i : 16;
  return reduce_min<W>(bits);
}

template <int W>
NIBBLE_INLINE float block_amax(const float* u) {
  int32_t negated[16];
  std::memcpy(negated, u, sizeof negated);
  for (int32_t& bits : negated) bits = -(bits & 0x7FFFFFFF);
  return std::bit_cast<float>(-reduce_min<W>(negated));
}

/// E2M1 codes of W weights over a scale; zero has no sign.
template <int W>
NIBBLE_INLINE void element_codes(const float* weights, float scale, int32_t* out) {
  Floats<W> u;
  std::memcpy(&u, weights, sizeof u);
  const Floats<W> magnitudes = (Floats<W>)((Ints<W>)u & 0x7FFFFFFF);
  Floats<W> x = magnitudes / (Floats<W>{} + scale);
  saturate<W>(x);
  Ints<W> offset;
  rounding_offset<W>(x, offset);
  const Ints<W> rounded = (Ints<W>)(x + (Floats<W>)offset);
  const Ints<W> codes = (rounded & 7) + 2 * ((offset >> 23) - (127 + 22));
  const Ints<W> signed_codes = codes | (((Ints<W>)u >> 28) & 8 & (codes != 0));
  std::memcpy(out, &signed_codes, sizeof signed_codes);
}

/// 16 codes to 8 bytes, even columns low.
NIBBLE_INLINE uint64_t pack_codes(const int32_t* codes) {
  uint8_t bytes[16];
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<uint8_t>(codes[i]);
  uint64_t halves[2];
  std::memcpy(halves, bytes, sizeof halves);
  for (uint64_t& x : halves) {
    x = (x | (x >> 4)) & 0x00FF00FF00FF00FFU;
    x = (x | (x >> 8)) & 0x0000FFFF0000FFFFU;
    x = (x | (x >> 16)) & 0x00000000FFFFFFFFU;
  }
  return halves[0] | (halves[1] << 32);
}

/// The code nearest to `value` (ties to even), at least 1 and at most 126.
NIBBLE_INLINE int code_nearest(float value) {
  if (value >= 448.0F) return 126;
  int code = 0;
  if (value < 0x1p-6F) {
    code = static_cast<int>((value + 0x1p14F) * 0x1p9F - 0x1p23F);  // ulp of 2^14 is 2^-9
  } else {
    const auto bits = std::bit_cast<uint32_t>(value);
    code = static_cast<int>(((bits + 0x7FFFFU + ((bits >> 20) & 1U)) >> 20) - (120U << 3));
  }
  return code < 1 ? 1 : (code > 126 ? 126 : code);
}

/// Blocks that are worked on together, step by step: within a step no block waits for another, so
/// the processor overlaps them; one block after the other would be one long chain of waiting.
struct Chunk {
  static constexpr int kBlocks = 32;
  float amax[kBlocks];
  int lo[kBlocks];         // first scale code of the window
  int amax_lane[kBlocks];  // where in the window the code nearest to amax/6 is
  int four_lane[kBlocks];  // the same of amax/4; at most 12, as 8.5/4 is 9 codes above 1
  int lane[kBlocks];       // the chosen one
  alignas(64) float errors[kBlocks * 16];
};

/// Steps 1 and 2: the window of each block, and errors in it. `u` are weights over 2^exponent.
template <int W>
NIBBLE_INLINE void measure_chunk(const float* u, int blocks, Chunk& chunk) {
  for (int b = 0; b < blocks; ++b) chunk.amax[b] = block_amax<W>(u + b * 16);
  for (int b = 0; b < blocks; ++b) {
    chunk.lo[b] = first_scale_code(chunk.amax[b]);
    chunk.amax_lane[b] = code_nearest(chunk.amax[b] / 6.0F) - chunk.lo[b];
    chunk.four_lane[b] = code_nearest(chunk.amax[b] / 4.0F) - chunk.lo[b];
  }
  for (int b = 0; b < blocks; ++b) {
    alignas(64) float exact[16];
    for (int i = 0; i < 16; ++i)
      exact[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(u[b * 16 + i]) & 0x7FFFFFF0U);
    for (int i = 0; i < 16; i += W)
      window_errors<W>(exact, chunk.lo[b] + i, chunk.errors + b * 16 + i);
  }
}

/// Steps 3 and 4: the scale of each block, and its codes.
template <int W>
NIBBLE_INLINE void encode_chunk(const float* u, int blocks, RoundAlgorithm algorithm, Chunk& chunk,
                                uint8_t* codes, uint8_t* scales) {
  for (int b = 0; b < blocks; ++b) {
    const float* errors = chunk.errors + b * 16;
    chunk.lane[b] =
        algorithm == RoundAlgorithm::search ? least_lane<W>(errors) : chunk.amax_lane[b];
    if (algorithm == RoundAlgorithm::four_over_six &&
        errors[chunk.four_lane[b]] < errors[chunk.amax_lane[b]])
      chunk.lane[b] = chunk.four_lane[b];
  }
  for (int b = 0; b < blocks; ++b) {
    const int code = chunk.lo[b] + chunk.lane[b];
    alignas(64) int32_t elements[16] = {};
    for (int i = 0; i < 16; i += W)
      element_codes<W>(u + b * 16 + i, kBlockTables.scale[static_cast<size_t>(code)], elements + i);
    const uint64_t packed = pack_codes(elements);
    std::memcpy(codes + b * 8, &packed, 8);
    scales[b] = chunk.amax[b] == 0.0F ? kZeroBlockScale : static_cast<uint8_t>(code);
  }
}

/// K weights of one row, already over 2^exponent, into K/2 code bytes and K/16 scales.
template <int W>
NIBBLE_INLINE RoundStatistics round_row(const float* row, int64_t cols, RoundAlgorithm algorithm,
                                        uint8_t* codes, uint8_t* scales) {
  RoundStatistics total;
  Chunk chunk = {};
  float squares[16] = {};
  for (int64_t done = 0; done < cols / 16; done += Chunk::kBlocks) {
    const float* u = row + done * 16;
    const int64_t left = cols / 16 - done;
    const int blocks = left < Chunk::kBlocks ? static_cast<int>(left) : Chunk::kBlocks;
    measure_chunk<W>(u, blocks, chunk);
    encode_chunk<W>(u, blocks, algorithm, chunk, codes + done * 8, scales + done);
    for (int b = 0; b < blocks; ++b) {
      const float* errors = chunk.errors + b * 16;
      total.error_squares += static_cast<double>(errors[chunk.lane[b]]);
      total.amax_error_squares += static_cast<double>(errors[chunk.amax_lane[b]]);
      uint64_t packed;
      std::memcpy(&packed, codes + (done + b) * 8, 8);
      const bool zero = chunk.amax[b] == 0.0F;
      total.zero_blocks += zero;
      total.flushed_blocks += packed == 0 && !zero;
    }
    for (int b = 0; b < blocks; ++b)
      for (int i = 0; i < 16; ++i) squares[i] += u[b * 16 + i] * u[b * 16 + i];
  }
  for (const float x : squares) total.weight_squares += static_cast<double>(x);
  return total;
}

}  // namespace nibble::detail
