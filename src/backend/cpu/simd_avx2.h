// Vec on AVX2 + FMA: two ymm registers. The contract of these names is written once, in
// simd_scalar.h. Included by kernels_avx2.cc alone.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/transpose.h"

namespace nibble::cpu {
namespace {

#ifdef __AVXVNNI__
constexpr const char* kIsaName = "avxvnni";
#else
constexpr const char* kIsaName = "avx2";
#endif
constexpr int kRowsPerTile = 6;  // of the blocked product; 12 of 16 registers accumulate
constexpr int kPanelsPerTile = 1;
constexpr int kPanelsDirect = 4;
constexpr int kPanelsFewRows = 1;
constexpr int kQueriesPerTile = 1;

struct Vec {
  __m256 lo, hi;
};
struct Words {
  __m256i lo, hi;
};
struct Mask {
  __m256 lo, hi;
};

inline __m256i first_lanes(int n, int lane_begin) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n - lane_begin), lanes);
}

inline Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Vec broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Vec load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, first_lanes(n, 0)), _mm256_maskload_ps(p + 8, first_lanes(n, 8))};
}
inline void store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline void store_n(float* p, Vec a, int n) {
  _mm256_maskstore_ps(p, first_lanes(n, 0), a.lo);
  _mm256_maskstore_ps(p + 8, first_lanes(n, 8), a.hi);
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Vec sub(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Vec div(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Mask less(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
inline Vec select(Mask m, Vec a, Vec b) {
  return {_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}
inline Vec keep_first(Vec a, int n, Vec rest) {
  const Mask m = {_mm256_castsi256_ps(first_lanes(n, 0)), _mm256_castsi256_ps(first_lanes(n, 8))};
  return select(m, a, rest);
}

inline __m256i load_256(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline Words load_words(const std::byte* p) { return {load_256(p), load_256(p + 32)}; }
template <int kBits>
Words shift_left(Words a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
template <int kBits>
Words shift_right_signed(Words a) {
  return {_mm256_srai_epi32(a.lo, kBits), _mm256_srai_epi32(a.hi, kBits)};
}
inline Words mask_words(Words a, uint32_t bits) {
  const __m256i m = _mm256_set1_epi32(static_cast<int>(bits));
  return {_mm256_and_si256(a.lo, m), _mm256_and_si256(a.hi, m)};
}
inline Words add_words(Words a, uint32_t b) {
  const __m256i v = _mm256_set1_epi32(static_cast<int>(b));
  return {_mm256_add_epi32(a.lo, v), _mm256_add_epi32(a.hi, v)};
}
inline Vec as_floats(Words a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
inline Words as_words(Vec a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
inline Words widen_halves(const std::byte* p) {
  const auto* halves = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(halves)),
          _mm256_cvtepu16_epi32(_mm_loadu_si128(halves + 1))};
}
inline Words widen_signed(const std::byte* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
inline Words widen_bytes(const std::byte* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}

inline Words widen_nibbles(const std::byte* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i low = _mm_set1_epi8(15);
  const __m128i nibbles =
      _mm_unpacklo_epi8(_mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16(bytes, 4), low));
  return {_mm256_cvtepu8_epi32(nibbles), _mm256_cvtepu8_epi32(_mm_srli_si128(nibbles, 8))};
}
inline __m256 look_up_half(Vec table, __m256i index) {  // bit 3 chooses the half of the table
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.lo, index),
                          _mm256_permutevar8x32_ps(table.hi, index),
                          _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
inline Vec look_up(Vec table, Words index) {
  return {look_up_half(table, index.lo), look_up_half(table, index.hi)};
}

inline float reduce_add(Vec a) {
  const __m256 by8 = _mm256_add_ps(a.lo, a.hi);
  const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
}
inline float reduce_max(Vec a) {
  const __m256 by8 = _mm256_max_ps(a.lo, a.hi);
  const __m128 by4 = _mm_max_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_max_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_max_ss(by2, _mm_movehdup_ps(by2)));
}

/// Nibbles of one word are eight consecutive k of one lane. A permutation looks three bits up, the
/// fourth is the sign.
struct Nvfp4Unit {
  static constexpr int kColumns = 8;
  Words codes;
  static Nvfp4Unit load(const std::byte* p) { return {load_words(p)}; }
  template <int kNibble>
  static __m256 column(__m256i codes) {
    const __m256 magnitudes = _mm256_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F);
    const __m256i sign =
        _mm256_and_si256(_mm256_slli_epi32(codes, 28 - 4 * kNibble), _mm256_set1_epi32(INT32_MIN));
    const __m256 magnitude =
        _mm256_permutevar8x32_ps(magnitudes, _mm256_srli_epi32(codes, 4 * kNibble));
    return _mm256_or_ps(magnitude, _mm256_castsi256_ps(sign));
  }
  template <int kPair>
  void decode(Vec& even, Vec& odd) const {
    even = {column<2 * kPair>(codes.lo), column<2 * kPair>(codes.hi)};
    odd = {column<2 * kPair + 1>(codes.lo), column<2 * kPair + 1>(codes.hi)};
  }
};

/// 16 bytes of a row, and of the row four after it.
inline __m256i row_and_fourth(const std::byte* row, int64_t stride) {
  const auto load_16 = [](const std::byte* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(row)), load_16(row + 4 * stride),
                                 1);
}
/// Four words of eight rows, one word a row of 64 bytes.
inline void interleave_8x4(const std::byte* rows, int64_t stride, std::byte* out) {
  const __m256i a = row_and_fourth(rows, stride);
  const __m256i b = row_and_fourth(rows + stride, stride);
  const __m256i c = row_and_fourth(rows + 2 * stride, stride);
  const __m256i d = row_and_fourth(rows + 3 * stride, stride);
  const __m256i ab_low = _mm256_unpacklo_epi32(a, b);
  const __m256i cd_low = _mm256_unpacklo_epi32(c, d);
  const __m256i ab_high = _mm256_unpackhi_epi32(a, b);
  const __m256i cd_high = _mm256_unpackhi_epi32(c, d);
  const auto put = [&](int word, __m256i v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + word * 64), v);
  };
  put(0, _mm256_unpacklo_epi64(ab_low, cd_low));
  put(1, _mm256_unpackhi_epi64(ab_low, cd_low));
  put(2, _mm256_unpacklo_epi64(ab_high, cd_high));
  put(3, _mm256_unpackhi_epi64(ab_high, cd_high));
}
inline void interleave_line(const std::byte* rows, int64_t stride, std::byte* out) {
  for (int at = 0; at < 64; at += 16)
    for (int half = 0; half < 2; ++half)
      interleave_8x4(rows + half * 8 * stride + at, stride, out + at * 16 + half * 32);
}
inline void interleave_scales(const std::byte* rows, int64_t stride, std::byte* out) {
  transpose_bytes(rows, stride, out);
}

}  // namespace
}  // namespace nibble::cpu
