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

}  // namespace
}  // namespace nibble::cpu
