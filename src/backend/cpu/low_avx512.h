// The vector type for products of activations with few bits, for AVX-512 with VNNI, BF16 and VBMI.
// The contract of these names is written once, in low_scalar.h. Included by kernels_avx512.cc
// alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd_avx512.h"

namespace nibble::cpu {
namespace {

constexpr int kLowRowsPerTile = 6;
constexpr int kLowFp8RowsPerTile = 12;
constexpr int kLowPanelsPerTile = 2;
constexpr int kLowPanelsDirect = 4;
constexpr int kLowFp8DirectRows = 8;  // up to here FP8 weights are decoded in registers
constexpr int kLowPanelsFewRows = 2;
constexpr int kWeightOffset = 12;
constexpr int kStoredDotRows = 2;  // rows of inputs that stored_dots() has registers for

struct Ints {
  __m512i v;
};
struct Bytes {
  __m512i v;
};
struct Pairs {
  __m512i v;
};

inline uint32_t reduce_max_bits(Words a) { return _mm512_reduce_max_epu32(a.v); }
/// The lowest byte of each lane, in the order of codes; returns the sum of these signed bytes.
inline int32_t store_codes(std::byte* p, Words a) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  const __m128i codes = _mm_shuffle_epi8(_mm512_cvtepi32_epi8(a.v), order);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), codes);
  const __m128i shifted = _mm_xor_si128(codes, _mm_set1_epi8(-128));  // unsigned, 128 more
  const __m128i halves = _mm_sad_epu8(shifted, _mm_setzero_si128());
  return _mm_cvtsi128_si32(halves) + _mm_extract_epi16(halves, 4) - 16 * 128;
}
inline Ints broadcast_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline Vec to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }

/// The lookup reads six bits of a byte; the table repeats, so the other two do not count.
inline void decode_integers(const std::byte* p, Bytes& low, Bytes& high) {
  const __m512i integers = _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const __m512i codes = _mm512_loadu_si512(p);
  low.v = _mm512_permutexvar_epi8(codes, integers);
  high.v = _mm512_permutexvar_epi8(_mm512_srli_epi16(codes, 4), integers);
}
inline __m512i four_bytes(const std::byte* x) {
  int32_t four;
  __builtin_memcpy(&four, x, sizeof four);
  return _mm512_set1_epi32(four);
}
inline Ints dot_bytes(Ints sum, const Bytes (&w)[4], const std::byte* x) {
  for (int word = 0; word < 4; ++word)
    sum.v = _mm512_dpbusd_epi32(sum.v, w[word].v, four_bytes(x + 4 * word));
  return sum;
}
template <int R, int P>
inline void dot_tile(Ints (&sum)[R][P], const Bytes (*w)[P], const std::byte* x,
                     const int64_t (&row)[R]) {
#pragma GCC unroll 4
  for (int word = 0; word < 4; ++word)
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512i values = four_bytes(x + row[r] + 4 * word);
      for (int p = 0; p < P; ++p)
        sum[r][p].v = _mm512_dpbusd_epi32(sum[r][p].v, w[word][p].v, values);
    }
}

/// The BF16 bits of the 128 magnitudes of E4M3, as the low and the high bytes.
struct Fp8Table {
  uint8_t low[128];
  uint8_t high[128];
};
constexpr Fp8Table make_fp8_table() {
  Fp8Table table = {};
  for (unsigned code = 0; code < 128; ++code) {
    unsigned exponent = code >> 3;
    unsigned fraction = code & 7U;
    unsigned bits = 0;
    if (exponent > 0) {
      bits = (exponent + 120U) << 7 | fraction << 4;
    } else if (fraction > 0) {  // subnormal: fraction * 2^-9
      exponent = fraction >= 4 ? 2U : fraction >= 2 ? 1U : 0U;
      bits = (exponent + 118U) << 7 | ((fraction << (7U - exponent)) & 0x7FU);
    }
    table.low[code] = static_cast<uint8_t>(bits & 0xFFU);
    table.high[code] = static_cast<uint8_t>(bits >> 8);
  }
  return table;
}
alignas(64) constexpr Fp8Table kFp8Table = make_fp8_table();

/// Puts the low and the high bytes of columns 0 and 1 of each word together; 64 more is a high
/// byte.
struct PairBytes {
  uint8_t index[64];
};
constexpr PairBytes make_pair_bytes() {
  PairBytes bytes = {};
  for (unsigned i = 0; i < 64; ++i)
    bytes.index[i] = static_cast<uint8_t>(i / 4 * 4 + i % 4 / 2 + i % 2 * 64);
  return bytes;
}
alignas(64) constexpr PairBytes kPairBytes = make_pair_bytes();

inline void decode_fp8(const std::byte* p, Pairs& first, Pairs& second) {
  const __m512i codes = _mm512_loadu_si512(p);
  const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(kFp8Table.low), codes,
                                               _mm512_load_si512(kFp8Table.low + 64));
  __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(kFp8Table.high), codes,
                                          _mm512_load_si512(kFp8Table.high + 64));
  // high | (codes & 0x80), the sign
  high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(static_cast<char>(0x80)), 0xF8);
  const __m512i place = _mm512_load_si512(kPairBytes.index);
  first.v = _mm512_permutex2var_epi8(low, place, high);
  second.v = _mm512_permutex2var_epi8(low, _mm512_add_epi8(place, _mm512_set1_epi8(2)), high);
}
inline Vec dot_pairs(Vec sum, const Pairs& w, uint32_t x) {
  const __m512i values = _mm512_set1_epi32(static_cast<int>(x));
  return {
      _mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(w.v), reinterpret_cast<__m512bh>(values))};
}

}  // namespace
}  // namespace nibble::cpu
