// Vec on AVX-512 (F, BW, VL, DQ): one zmm register. The contract of these names is written once, in
// simd_scalar.h. Included by kernels_avx512.cc alone.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace nibble::cpu {
namespace {

constexpr const char* kIsaName = "avx512";
constexpr int kRowsPerTile = 12;   // of the blocked product; 24 of 32 registers accumulate
constexpr int kPanelsPerTile = 2;  // of the blocked product
constexpr int kPanelsDirect = 8;   // of the one-row product: 8 chains hide the latency of FMA
constexpr int kPanelsFewRows = 4;  // of the two- to four-row product
constexpr int kQueriesPerTile = 4;

struct Vec {
  __m512 v;
};
struct Words {
  __m512i v;
};
using Mask = __mmask16;

inline __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1U << n) - 1U); }

inline Vec zero() { return {_mm512_setzero_ps()}; }
inline Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Vec load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
inline void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
inline void store_n(float* p, Vec a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
inline Vec select(Mask m, Vec a, Vec b) { return {_mm512_mask_blend_ps(m, b.v, a.v)}; }
inline Vec keep_first(Vec a, int n, Vec rest) {
  return {_mm512_mask_blend_ps(first_lanes(n), rest.v, a.v)};
}

inline Words load_words(const std::byte* p) { return {_mm512_loadu_si512(p)}; }
template <int kBits>
Words shift_left(Words a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
template <int kBits>
Words shift_right_signed(Words a) {
  return {_mm512_srai_epi32(a.v, kBits)};
}
inline Words mask_words(Words a, uint32_t bits) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi32(static_cast<int>(bits)))};
}
inline Words add_words(Words a, uint32_t b) {
  return {_mm512_add_epi32(a.v, _mm512_set1_epi32(static_cast<int>(b)))};
}
inline Vec as_floats(Words a) { return {_mm512_castsi512_ps(a.v)}; }
inline Words as_words(Vec a) { return {_mm512_castps_si512(a.v)}; }
inline Words widen_halves(const std::byte* p) {
  return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Words widen_signed(const std::byte* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline Words widen_bytes(const std::byte* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}

inline Words widen_nibbles(const std::byte* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i low = _mm_set1_epi8(15);
  return {_mm512_cvtepu8_epi32(
      _mm_unpacklo_epi8(_mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16(bytes, 4), low)))};
}
inline Vec look_up(Vec table, Words index) { return {_mm512_permutexvar_ps(index.v, table.v)}; }

inline __m256 upper_half(Vec a) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1));
}
inline float reduce_add(Vec a) {
  const __m256 by8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), upper_half(a));
  const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
}
inline float reduce_max(Vec a) {
  const __m256 by8 = _mm256_max_ps(_mm512_castps512_ps256(a.v), upper_half(a));
  const __m128 by4 = _mm_max_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_max_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_max_ss(by2, _mm_movehdup_ps(by2)));
}

/// Nibbles of one word are eight consecutive k of one lane: the lookup reads the low four bits of
/// a lane, so one shift and one permutation decode 16 weights.
struct Nvfp4Unit {
  static constexpr int kColumns = 8;
  __m512i codes;
  static Nvfp4Unit load(const std::byte* p) { return {_mm512_loadu_si512(p)}; }
  template <int kPair>
  void decode(Vec& even, Vec& odd) const {
    const __m512 values = _mm512_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F, -0.0F,
                                         -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F);
    even.v = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 8 * kPair), values);
    odd.v = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 8 * kPair + 4), values);
  }
};

inline __m128i load_16(const std::byte* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
/// 16 bytes of rows 0, 4, 8 and 12 from `row` on. A broadcast from memory needs no shuffle.
inline __m512i every_fourth(const std::byte* row, int64_t stride) {
  __m512i v = _mm512_castsi128_si512(load_16(row));
  v = _mm512_mask_broadcast_i32x4(v, 0x00F0, load_16(row + 4 * stride));
  v = _mm512_mask_broadcast_i32x4(v, 0x0F00, load_16(row + 8 * stride));
  return _mm512_mask_broadcast_i32x4(v, 0xF000, load_16(row + 12 * stride));
}
/// 32 bytes of a row, and of the row four after it.
inline __m512i row_and_fourth(const std::byte* row, int64_t stride) {
  const auto load_32 = [](const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  };
  return _mm512_inserti64x4(_mm512_castsi256_si512(load_32(row)), load_32(row + 4 * stride), 1);
}
/// Each 128 bits of word[i] have word i of four rows, i = 0 .. 3.
struct FourWords {
  __m512i word[4];
  FourWords(const std::byte* rows, int64_t stride) {
    const __m512i a = row_and_fourth(rows, stride);
    const __m512i b = row_and_fourth(rows + stride, stride);
    const __m512i c = row_and_fourth(rows + 2 * stride, stride);
    const __m512i d = row_and_fourth(rows + 3 * stride, stride);
    const __m512i ab_low = _mm512_unpacklo_epi32(a, b);
    const __m512i cd_low = _mm512_unpacklo_epi32(c, d);
    const __m512i ab_high = _mm512_unpackhi_epi32(a, b);
    const __m512i cd_high = _mm512_unpackhi_epi32(c, d);
    word[0] = _mm512_unpacklo_epi64(ab_low, cd_low);
    word[1] = _mm512_unpackhi_epi64(ab_low, cd_low);
    word[2] = _mm512_unpacklo_epi64(ab_high, cd_high);
    word[3] = _mm512_unpackhi_epi64(ab_high, cd_high);
  }
};
inline void interleave_line(const std::byte* rows, int64_t stride, std::byte* out) {
  for (int at = 0; at < 64; at += 32) {
    const FourWords first(rows + at, stride);
    const FourWords last(rows + at + 8 * stride, stride);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      std::byte* to = out + at * 16 + i * 64;
      _mm512_storeu_si512(to, _mm512_shuffle_i32x4(first.word[i], last.word[i], 0x88));
      _mm512_storeu_si512(to + 256, _mm512_shuffle_i32x4(first.word[i], last.word[i], 0xDD));
    }
  }
}
inline void interleave_scales(const std::byte* rows, int64_t stride, std::byte* out) {
  const __m512i a = every_fourth(rows, stride);
  const __m512i b = every_fourth(rows + stride, stride);
  const __m512i c = every_fourth(rows + 2 * stride, stride);
  const __m512i d = every_fourth(rows + 3 * stride, stride);
  const __m512i ab_low = _mm512_unpacklo_epi8(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi8(c, d);
  const __m512i ab_high = _mm512_unpackhi_epi8(a, b);
  const __m512i cd_high = _mm512_unpackhi_epi8(c, d);
  // Four bytes of four rows lie together now, in 128 bits for each four rows.
  const __m512i place = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const auto put = [&](int at, __m512i v) {
    _mm512_storeu_si512(out + at, _mm512_permutexvar_epi32(place, v));
  };
  put(0, _mm512_unpacklo_epi16(ab_low, cd_low));
  put(64, _mm512_unpackhi_epi16(ab_low, cd_low));
  put(128, _mm512_unpacklo_epi16(ab_high, cd_high));
  put(192, _mm512_unpackhi_epi16(ab_high, cd_high));
}

}  // namespace
}  // namespace nibble::cpu
