// The vector type for products of activations with few bits, for NEON with dot product. The
// contract of these names is written once, in low_scalar.h. Included by kernels_neon.cc and
// kernels_i8mm.cc alone, after simd_neon.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd_neon.h"

namespace nibble::cpu {
namespace {

constexpr int kLowRowsPerTile = 4;
constexpr int kLowFp8RowsPerTile = 4;
constexpr int kLowPanelsPerTile = 1;
constexpr int kLowPanelsDirect = 2;
constexpr int kLowFp8DirectRows = 4;  // up to here FP8 weights are decoded in registers
constexpr int kLowPanelsFewRows = 1;
constexpr int kWeightOffset = 0;  // SDOT multiplies signed bytes
constexpr int kStoredDotRows = 0;

struct Ints {
  int32x4_t a, b, c, d;
};
struct Bytes {
  int8x16_t a, b, c, d;
};
struct Pairs {
  Vec even, odd;
};

inline uint32_t reduce_max_bits(Words v) {
  return vmaxvq_u32(vmaxq_u32(vmaxq_u32(v.a, v.b), vmaxq_u32(v.c, v.d)));
}
/// The lowest byte of each lane, in the order of codes; returns the sum of these signed bytes.
inline int32_t store_codes(std::byte* p, Words v) {
  constexpr uint8_t kOrder[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
  const uint16x8_t low = vcombine_u16(vmovn_u32(v.a), vmovn_u32(v.b));
  const uint16x8_t high = vcombine_u16(vmovn_u32(v.c), vmovn_u32(v.d));
  const uint8x16_t bytes = vcombine_u8(vmovn_u16(low), vmovn_u16(high));
  const int8x16_t codes = vreinterpretq_s8_u8(vqtbl1q_u8(bytes, vld1q_u8(kOrder)));
  vst1q_s8(reinterpret_cast<int8_t*>(p), codes);
  return vaddlvq_s8(codes);
}
inline Ints broadcast_int(int32_t x) {
  const int32x4_t v = vdupq_n_s32(x);
  return {v, v, v, v};
}
inline Vec to_floats(Ints v) { return quarters<Vec>(vcvtq_f32_s32, v); }

inline void decode_integers(const std::byte* p, Bytes& low, Bytes& high) {
  constexpr int8_t kIntegers[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const int8x16_t integers = vld1q_s8(kIntegers);
  const Words codes = load_words(p);
  low = quarters<Bytes>(
      [&](uint32x4_t c) {
        return vqtbl1q_s8(integers, vandq_u8(vreinterpretq_u8_u32(c), vdupq_n_u8(15)));
      },
      codes);
  high = quarters<Bytes>(
      [&](uint32x4_t c) { return vqtbl1q_s8(integers, vshrq_n_u8(vreinterpretq_u8_u32(c), 4)); },
      codes);
}
/// sum + the products of one word's four columns, which lane kWord of x holds.
template <int kWord>
inline Ints dot_word(Ints sum, const Bytes& w, int8x16_t x) {
  return quarters<Ints>([&](int32x4_t s, int8x16_t v) { return vdotq_laneq_s32(s, v, x, kWord); },
                        sum, w);
}
inline Ints dot_bytes(Ints sum, const Bytes (&w)[4], const std::byte* x) {
  const int8x16_t values = vreinterpretq_s8_u8(load_16_bytes(x));
  sum = dot_word<0>(sum, w[0], values);
  sum = dot_word<1>(sum, w[1], values);
  sum = dot_word<2>(sum, w[2], values);
  return dot_word<3>(sum, w[3], values);
}
/// A word of all rows after the other, so that its weights are loaded once.
template <int kWord, int R, int P>
inline void dot_word_of_tile(Ints (&sum)[R][P], const Bytes (&w)[P], const int8x16_t (&x)[R]) {
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) sum[r][p] = dot_word<kWord>(sum[r][p], w[p], x[r]);
}
template <int R, int P>
inline void dot_tile(Ints (&sum)[R][P], const Bytes (*w)[P], const std::byte* x,
                     const int64_t (&row)[R]) {
  int8x16_t values[R];
  for (int r = 0; r < R; ++r) values[r] = vreinterpretq_s8_u8(load_16_bytes(x + row[r]));
  dot_word_of_tile<0>(sum, w[0], values);
  dot_word_of_tile<1>(sum, w[1], values);
  dot_word_of_tile<2>(sum, w[2], values);
  dot_word_of_tile<3>(sum, w[3], values);
}

inline Vec e4m3_of_high_byte(Words w) {
  const Words fields = mask_words(shift_right_signed<4>(w), 0x87F00000U);
  return mul(as_floats(fields), broadcast(0x1p120F));
}
inline void decode_fp8(const std::byte* p, Pairs& first, Pairs& second) {
  const Words w = load_words(p);
  first = {e4m3_of_high_byte(shift_left<24>(w)), e4m3_of_high_byte(shift_left<16>(w))};
  second = {e4m3_of_high_byte(shift_left<8>(w)), e4m3_of_high_byte(w)};
}
/// BFDOT rounds otherwise, so two FMAs.
inline Vec dot_pairs(Vec sum, const Pairs& w, uint32_t x) {
  const auto value = [](uint32_t bits) {
    const float32x4_t v = vreinterpretq_f32_u32(vdupq_n_u32(bits));
    return Vec{v, v, v, v};
  };
  return fma(value(x << 16), w.even, fma(value(x & 0xFFFF0000U), w.odd, sum));
}

}  // namespace
}  // namespace nibble::cpu
