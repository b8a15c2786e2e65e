// Vec on AVX2 + FMA: two ymm registers. The contract of these names is written once, in
// simd_scalar.h. Included by kernels_avx2.cc alone.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace nibble::cpu {
namespace {

constexpr const char* kIsaName = "avx2";
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

/// Four k of 16 lanes in 32 bytes. Two byte lookups give the two halves of the BF16 values; the
/// unpacking that joins them fixes the order of the lanes (nvfp4_slot_lane).
struct Nvfp4Unit {
  static constexpr int kColumns = 4;
  __m256i codes;
  static Nvfp4Unit load(const std::byte* p) { return {load_256(p)}; }
  template <int kPair>
  void decode(Vec& even, Vec& odd) const {
    const auto h = [](int x) { return static_cast<char>(x); };
    const __m256i upper = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40, h(0x80), h(0xBF), h(0xBF),
                      h(0xBF), h(0xC0), h(0xC0), h(0xC0), h(0xC0)));
    const __m256i lower = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0, h(0x80), h(0xC0), 0, 0x40, h(0x80), h(0xC0), 0, 0, h(0x80), h(0xC0), 0,
                      0x40, h(0x80), h(0xC0)));
    const __m256i shifted = kPair == 0 ? codes : _mm256_srli_epi16(codes, 4);
    const __m256i index = _mm256_and_si256(shifted, _mm256_set1_epi8(0x0F));
    const __m256i top = _mm256_shuffle_epi8(upper, index);
    const __m256i bottom = _mm256_shuffle_epi8(lower, index);
    const __m256i first = _mm256_unpacklo_epi8(bottom, top);  // lanes 0-7: BF16 of k, k + 1
    const __m256i second = _mm256_unpackhi_epi8(bottom, top);
    const __m256i odd_half = _mm256_set1_epi32(static_cast<int>(0xFFFF0000U));
    even = {_mm256_castsi256_ps(_mm256_slli_epi32(first, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(second, 16))};
    odd = {_mm256_castsi256_ps(_mm256_and_si256(first, odd_half)),
           _mm256_castsi256_ps(_mm256_and_si256(second, odd_half))};
  }
};
// Slot = nibble of a 64-byte group (low nibble first): two units of 16 lanes x 4 k.
constexpr int nvfp4_slot_lane(int slot) {
  const int lane = slot % 64 / 4;  // four nibbles to a lane
  const int quarter = lane / 4;    // 8-11 and 4-7 trade places in the unpacking
  return quarter == 1 ? lane + 4 : quarter == 2 ? lane - 4 : lane;
}
constexpr int nvfp4_slot_column(int slot) {
  const int in_lane = slot % 4;  // byte 0 low, byte 0 high, byte 1 low, byte 1 high
  return slot / 64 * 4 + in_lane / 2 + in_lane % 2 * 2;
}

}  // namespace
}  // namespace nibble::cpu
