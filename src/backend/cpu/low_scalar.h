// The vector type for products of activations with few bits (low_rows.inl), in portable C++; the
// other low_*.h define the same names. Included after simd_scalar.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd_scalar.h"

namespace nibble::cpu {
namespace {

constexpr int kLowRowsPerTile = 4;
constexpr int kLowFp8RowsPerTile = 4;
constexpr int kLowPanelsPerTile = 1;
constexpr int kLowPanelsDirect = 2;
constexpr int kLowFp8DirectRows = 4;  // up to here FP8 weights are decoded in registers
constexpr int kLowPanelsFewRows = 1;
constexpr int kWeightOffset = 12;  // makes integer weights, -12 .. 12, unsigned
constexpr int kStoredDotRows = 0;  // there is no stored_dots(): stored_avx512.h

struct Ints {
  int32_t lane[16];
};
/// Four bytes to a lane.
struct Bytes {
  uint8_t lane[16][4];
};
/// The values of two BF16 numbers to a lane: the even and the odd column.
struct Pairs {
  Vec even, odd;
};

/// The largest of 16 unsigned words.
inline uint32_t reduce_max_bits(Words a) {
  uint32_t largest = 0;
  for (int i = 0; i < 16; ++i) largest = a.lane[i] > largest ? a.lane[i] : largest;
  return largest;
}
/// The lowest byte of each lane, in the order of codes; returns the sum of these signed bytes. The
/// order is columns 0 2 4 6, 1 3 5 7, then the same of the other eight, as a word of a panel has
/// the even columns in its low nibbles and the odd ones in the high ones.
inline int32_t store_codes(std::byte* p, Words a) {
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) {
    const auto code = static_cast<int8_t>(a.lane[i] & 0xFFU);
    p[i / 8 * 8 + i % 2 * 4 + i % 8 / 2] = static_cast<std::byte>(code);
    sum += code;
  }
  return sum;
}
inline Ints broadcast_int(int32_t x) {
  Ints out;
  for (int i = 0; i < 16; ++i) out.lane[i] = x;
  return out;
}
inline Vec to_floats(Ints a) {
  return each_lane([&](int i) { return static_cast<float>(a.lane[i]); });
}

/// 64 bytes of E2M1 codes as 2 * E2M1 + kWeightOffset: low nibbles, then high ones.
inline void decode_integers(const std::byte* p, Bytes& low, Bytes& high) {
  constexpr uint8_t kIntegers[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
  for (int i = 0; i < 64; ++i) {
    const auto byte = static_cast<uint8_t>(p[i]);
    low.lane[i / 4][i % 4] = kIntegers[byte & 15U];
    high.lane[i / 4][i % 4] = kIntegers[byte >> 4];
  }
}
/// sum + the products of 16 columns, four to a word; x: 16 signed bytes.
inline Ints dot_bytes(Ints sum, const Bytes (&w)[4], const std::byte* x) {
  for (int word = 0; word < 4; ++word)
    for (int lane = 0; lane < 16; ++lane)
      for (int i = 0; i < 4; ++i)
        sum.lane[lane] += int32_t{w[word].lane[lane][i]} * static_cast<int8_t>(x[4 * word + i]);
  return sum;
}
/// It does that for R rows of x, which begin row[r] bytes on, and P panels; w: [4][P].
template <int R, int P>
void dot_tile(Ints (&sum)[R][P], const Bytes (*w)[P], const std::byte* x, const int64_t (&row)[R]) {
  for (int p = 0; p < P; ++p) {
    const Bytes weights[4] = {w[0][p], w[1][p], w[2][p], w[3][p]};
    for (int r = 0; r < R; ++r) sum[r][p] = dot_bytes(sum[r][p], weights, x + row[r]);
  }
}

/// E4M3 bits in the high byte of a word, moved to F32; exact.
inline Vec e4m3_of_high_byte(Words w) {
  const Words fields = mask_words(shift_right_signed<4>(w), 0x87F00000U);
  return mul(as_floats(fields), broadcast(0x1p120F));
}
/// 64 bytes of E4M3 codes, four columns to a lane.
inline void decode_fp8(const std::byte* p, Pairs& first, Pairs& second) {
  const Words w = load_words(p);
  first = {e4m3_of_high_byte(shift_left<24>(w)), e4m3_of_high_byte(shift_left<16>(w))};
  second = {e4m3_of_high_byte(shift_left<8>(w)), e4m3_of_high_byte(w)};
}
/// sum + odd products, then + even products, each rounded; x: two BF16 numbers, even lowest.
inline Vec dot_pairs(Vec sum, const Pairs& w, uint32_t x) {
  const uint32_t even_bits = x << 16;
  const uint32_t odd_bits = x & 0xFFFF0000U;
  float even;
  float odd;
  __builtin_memcpy(&even, &even_bits, sizeof even);
  __builtin_memcpy(&odd, &odd_bits, sizeof odd);
  return fma(broadcast(even), w.even, fma(broadcast(odd), w.odd, sum));
}

}  // namespace
}  // namespace nibble::cpu
