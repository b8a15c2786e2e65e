// NVFP4 weights that lie as files have them, in rows, for AVX-512: their products with integer
// activations, and their integers in the order of panels. low_stored.inl and low_blocked.inl use
// them. Included by kernels_avx512.cc alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/low_avx512.h"

namespace nibble::cpu {
namespace {

/// Integer activations of 128 columns as stored_dots() wants them: the even ones, the odd ones, and
/// the offsets of their groups.
struct StoredInputs {
  __m512i even, odd, offsets;
};
inline StoredInputs load_stored_inputs(const std::byte* codes, const int32_t* offsets) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  const __m512i first = _mm512_loadu_si512(codes);
  const __m512i last = _mm512_loadu_si512(codes + 64);
  return {_mm512_permutex2var_epi32(first, even, last), _mm512_permutex2var_epi32(first, odd, last),
          _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(offsets)))};
}
template <int kPattern>
inline __m512i shuffle_words(__m512i a, __m512i b) {
  return _mm512_castps_si512(
      _mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), kPattern));
}
/// Sixteen vectors of words to eight: in `quads` 128 bits are four rows, and vector q has the rows
/// from 4 q on; after it each vector has all rows of one group.
inline void join_quads(const __m512i (&quads)[4], __m512i (&groups)[4]) {
  const __m512i a = _mm512_shuffle_i32x4(quads[0], quads[1], 0x44);
  const __m512i b = _mm512_shuffle_i32x4(quads[2], quads[3], 0x44);
  const __m512i c = _mm512_shuffle_i32x4(quads[0], quads[1], 0xEE);
  const __m512i d = _mm512_shuffle_i32x4(quads[2], quads[3], 0xEE);
  groups[0] = _mm512_shuffle_i32x4(a, b, 0x88);
  groups[1] = _mm512_shuffle_i32x4(a, b, 0xDD);
  groups[2] = _mm512_shuffle_i32x4(c, d, 0x88);
  groups[3] = _mm512_shuffle_i32x4(c, d, 0xDD);
}
/// Sums of half a group, of four rows that lie as files have them, 64 bytes of each.
template <int R>
inline void half_group_dots(const std::byte* rows, int64_t stride, const StoredInputs (&x)[R],
                            __m512i (&half)[R][4]) {
  const __m512i integers = _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i codes = _mm512_loadu_si512(rows + i * stride);
    const __m512i low = _mm512_permutexvar_epi8(codes, integers);
    const __m512i high = _mm512_permutexvar_epi8(_mm512_srli_epi16(codes, 4), integers);
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r)
      half[r][i] =
          _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(x[r].offsets, low, x[r].even), high, x[r].odd);
  }
}
/// The sums of eight groups of 16 rows. Half a group has at most 8 products of 24 * 127, so that
/// two rows fit 16 bits and one instruction adds the halves; then lanes of groups become lanes of
/// rows.
template <int R>
inline void stored_dots(const std::byte* rows, int64_t stride, const StoredInputs (&x)[R],
                        Ints (&dot)[R][8]) {
  const __m512i ones = _mm512_set1_epi16(1);
  __m512i even[R][4];
  __m512i odd[R][4];
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    __m512i half[R][4];
    half_group_dots(rows + 4 * q * stride, stride, x, half);
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) {
      const __m512i ab = _mm512_madd_epi16(_mm512_packs_epi32(half[r][0], half[r][1]), ones);
      const __m512i cd = _mm512_madd_epi16(_mm512_packs_epi32(half[r][2], half[r][3]), ones);
      even[r][q] = shuffle_words<0x88>(ab, cd);
      odd[r][q] = shuffle_words<0xDD>(ab, cd);
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) {
    __m512i evens[4];
    __m512i odds[4];
    join_quads(even[r], evens);
    join_quads(odd[r], odds);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      dot[r][2 * i].v = evens[i];
      dot[r][2 * i + 1].v = odds[i];
    }
  }
}
/// Codes of 128 columns of 16 rows that lie as files have them, as integers: those of columns 4 i
/// to 4 i + 3, as decode_integers() orders them, at weights[i * step].
inline void decode_stored_line(const std::byte* rows, int64_t stride, Bytes* weights, int step) {
  const __m512i integers = _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const auto put = [&](int word, __m512i codes) {
    weights[2 * word * step].v = _mm512_permutexvar_epi8(codes, integers);
    weights[(2 * word + 1) * step].v =
        _mm512_permutexvar_epi8(_mm512_srli_epi16(codes, 4), integers);
  };
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const FourWords first(rows + half * 32, stride);
    const FourWords last(rows + half * 32 + 8 * stride, stride);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      put(half * 8 + i, _mm512_shuffle_i32x4(first.word[i], last.word[i], 0x88));
      put(half * 8 + 4 + i, _mm512_shuffle_i32x4(first.word[i], last.word[i], 0xDD));
    }
  }
}
/// Word i of 16 rows, for i = 0 .. 3.
inline void load_four_words(const std::byte* rows, int64_t stride, Words (&words)[4]) {
  const __m512i a = every_fourth(rows, stride);
  const __m512i b = every_fourth(rows + stride, stride);
  const __m512i c = every_fourth(rows + 2 * stride, stride);
  const __m512i d = every_fourth(rows + 3 * stride, stride);
  const __m512i ab_low = _mm512_unpacklo_epi32(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi32(c, d);
  const __m512i ab_high = _mm512_unpackhi_epi32(a, b);
  const __m512i cd_high = _mm512_unpackhi_epi32(c, d);
  words[0].v = _mm512_unpacklo_epi64(ab_low, cd_low);
  words[1].v = _mm512_unpackhi_epi64(ab_low, cd_low);
  words[2].v = _mm512_unpacklo_epi64(ab_high, cd_high);
  words[3].v = _mm512_unpackhi_epi64(ab_high, cd_high);
}

}  // namespace
}  // namespace nibble::cpu
