// The vector type for products of activations with few bits, for AVX2, with
// AVX-VNNI where that is compiled for. The contract of these names is written once, in
// low_scalar.h. Included by kernels_avx2.cc and kernels_avxvnni.cc alone, after simd_avx2.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd_avx2.h"

namespace nibble::cpu {
namespace {

constexpr int kLowRowsPerTile = 4;
constexpr int kLowFp8RowsPerTile = 4;
constexpr int kLowPanelsPerTile = 1;
constexpr int kLowPanelsDirect = 2;
constexpr int kLowFp8DirectRows = 4;  // up to here FP8 weights are decoded in registers
constexpr int kLowPanelsFewRows = 1;
constexpr int kWeightOffset = 12;
constexpr int kStoredDotRows = 0;

struct Ints {
  __m256i lo, hi;
};
struct Bytes {
  __m256i lo, hi;
};
struct Pairs {
  Vec even, odd;
};

inline uint32_t reduce_max_bits(Words a) {
  const __m256i by8 = _mm256_max_epu32(a.lo, a.hi);
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(by8), _mm256_extracti128_si256(by8, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}
inline __m128i low_bytes(Words a) {
  const __m256i pick = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
  const auto four = [](__m128i v) { return _mm_cvtsi128_si32(v); };
  const __m256i lo = _mm256_shuffle_epi8(a.lo, pick);
  const __m256i hi = _mm256_shuffle_epi8(a.hi, pick);
  const int parts[4] = {four(_mm256_castsi256_si128(lo)), four(_mm256_extracti128_si256(lo, 1)),
                        four(_mm256_castsi256_si128(hi)), four(_mm256_extracti128_si256(hi, 1))};
  return _mm_setr_epi32(parts[0], parts[1], parts[2], parts[3]);
}
/// The lowest byte of each lane, in the order of codes; returns the sum of these signed bytes.
inline int32_t store_codes(std::byte* p, Words a) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  const __m128i codes = _mm_shuffle_epi8(low_bytes(a), order);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), codes);
  const __m128i shifted = _mm_xor_si128(codes, _mm_set1_epi8(-128));  // unsigned, 128 more
  const __m128i halves = _mm_sad_epu8(shifted, _mm_setzero_si128());
  return _mm_cvtsi128_si32(halves) + _mm_extract_epi16(halves, 4) - 16 * 128;
}
inline Ints broadcast_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Vec to_floats(Ints a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }

inline void decode_integers(const std::byte* p, Bytes& low, Bytes& high) {
  const __m256i integers = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const __m256i mask = _mm256_set1_epi8(0x0F);
  const auto lower = [&](__m256i codes) {
    return _mm256_shuffle_epi8(integers, _mm256_and_si256(codes, mask));
  };
  const Words codes = load_words(p);
  low = {lower(codes.lo), lower(codes.hi)};
  high = {lower(_mm256_srli_epi16(codes.lo, 4)), lower(_mm256_srli_epi16(codes.hi, 4))};
}
inline __m256i four_bytes(const std::byte* x) {
  int32_t four;
  __builtin_memcpy(&four, x, sizeof four);
  return _mm256_set1_epi32(four);
}
/// GCC 12 would make all products of a group first, which fill the registers, and then add them.
inline void keep_order(__m256i& lo, __m256i& hi) { asm volatile("" : "+x"(lo), "+x"(hi)); }
#ifdef __AVXVNNI__
inline Ints dot_bytes(Ints sum, const Bytes (&w)[4], const std::byte* x) {
  for (int word = 0; word < 4; ++word) {
    const __m256i values = four_bytes(x + 4 * word);
    sum.lo = _mm256_dpbusd_avx_epi32(sum.lo, w[word].lo, values);
    sum.hi = _mm256_dpbusd_avx_epi32(sum.hi, w[word].hi, values);
  }
  return sum;
}
#else
/// Four products of at most 24 * 127 in pairs stay below 2^15 (4 * 2 * 24 * 127 = 24,384), so the
/// 16-bit sums of four words cannot saturate.
inline Ints dot_bytes(Ints sum, const Bytes (&w)[4], const std::byte* x) {
  __m256i lo = _mm256_setzero_si256();
  __m256i hi = _mm256_setzero_si256();
  for (int word = 0; word < 4; ++word) {
    const __m256i values = four_bytes(x + 4 * word);
    lo = _mm256_add_epi16(lo, _mm256_maddubs_epi16(w[word].lo, values));
    hi = _mm256_add_epi16(hi, _mm256_maddubs_epi16(w[word].hi, values));
  }
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_add_epi32(sum.lo, _mm256_madd_epi16(lo, ones)),
          _mm256_add_epi32(sum.hi, _mm256_madd_epi16(hi, ones))};
}
#endif
#ifdef __AVXVNNI__
template <int R, int P>
inline void dot_tile(Ints (&sum)[R][P], const Bytes (*w)[P], const std::byte* x,
                     const int64_t (&row)[R]) {
#pragma GCC unroll 4
  for (int word = 0; word < 4; ++word)
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m256i values = four_bytes(x + row[r] + 4 * word);
      for (int p = 0; p < P; ++p) {
        sum[r][p].lo = _mm256_dpbusd_avx_epi32(sum[r][p].lo, w[word][p].lo, values);
        sum[r][p].hi = _mm256_dpbusd_avx_epi32(sum[r][p].hi, w[word][p].hi, values);
      }
    }
}
#else
/// A word of all rows after the other, so that its weights are loaded once.
template <int R, int P>
inline void dot_tile(Ints (&sum)[R][P], const Bytes (*w)[P], const std::byte* x,
                     const int64_t (&row)[R]) {
  __m256i lo[R][P];
  __m256i hi[R][P];
#pragma GCC unroll 4
  for (int word = 0; word < 4; ++word)
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m256i values = four_bytes(x + row[r] + 4 * word);
      for (int p = 0; p < P; ++p) {
        const __m256i first = _mm256_maddubs_epi16(w[word][p].lo, values);
        const __m256i last = _mm256_maddubs_epi16(w[word][p].hi, values);
        lo[r][p] = word == 0 ? first : _mm256_add_epi16(lo[r][p], first);
        hi[r][p] = word == 0 ? last : _mm256_add_epi16(hi[r][p], last);
        keep_order(lo[r][p], hi[r][p]);
      }
    }
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) {
      sum[r][p].lo = _mm256_add_epi32(sum[r][p].lo, _mm256_madd_epi16(lo[r][p], ones));
      sum[r][p].hi = _mm256_add_epi32(sum[r][p].hi, _mm256_madd_epi16(hi[r][p], ones));
    }
}
#endif

inline Vec e4m3_of_high_byte(Words w) {
  const Words fields = mask_words(shift_right_signed<4>(w), 0x87F00000U);
  return mul(as_floats(fields), broadcast(0x1p120F));
}
inline void decode_fp8(const std::byte* p, Pairs& first, Pairs& second) {
  const Words w = load_words(p);
  first = {e4m3_of_high_byte(shift_left<24>(w)), e4m3_of_high_byte(shift_left<16>(w))};
  second = {e4m3_of_high_byte(shift_left<8>(w)), e4m3_of_high_byte(w)};
}
inline Vec dot_pairs(Vec sum, const Pairs& w, uint32_t x) {
  const __m256i pair = _mm256_set1_epi32(static_cast<int>(x));
  const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
  const __m256 odd =
      _mm256_castsi256_ps(_mm256_and_si256(pair, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
  return fma({even, even}, w.even, fma({odd, odd}, w.odd, sum));
}

}  // namespace
}  // namespace nibble::cpu
