// Vec, the 16 F32 lanes every kernel is written on, in portable C++: correct everywhere. The other
// simd_*.h define the same names. Every function is exactly rounded or exact, and reductions are
// one fixed tree, so all give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/transpose.h"

namespace nibble::cpu {
namespace {

constexpr const char* kIsaName = "scalar";
constexpr int kRowsPerTile = 4;  // of the blocked product
constexpr int kPanelsPerTile = 1;
constexpr int kPanelsDirect = 2;
constexpr int kPanelsFewRows = 1;
constexpr int kQueriesPerTile = 1;

struct Vec {
  float lane[16];
};
struct Words {
  uint32_t lane[16];
};
struct Mask {
  bool lane[16];
};

template <typename F>
Vec each_lane(const F& f) {
  Vec out;
  for (int i = 0; i < 16; ++i) out.lane[i] = f(i);
  return out;
}
template <typename F>
Words each_word(const F& f) {
  Words out;
  for (int i = 0; i < 16; ++i) out.lane[i] = f(i);
  return out;
}

inline Vec broadcast(float x) {
  return each_lane([&](int) { return x; });
}
inline Vec zero() { return broadcast(0.0F); }
inline Vec load(const float* p) {
  return each_lane([&](int i) { return p[i]; });
}
/// The first n lanes (0..16) from memory, the others zero; nothing after them is touched.
inline Vec load_n(const float* p, int n) {
  return each_lane([&](int i) { return i < n ? p[i] : 0.0F; });
}
inline void store_n(float* p, Vec a, int n) {
  for (int i = 0; i < n; ++i) p[i] = a.lane[i];
}
inline void store(float* p, Vec a) { store_n(p, a, 16); }
/// a * b + c, rounded once.
inline Vec fma(Vec a, Vec b, Vec c) {
  return each_lane([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
inline Vec add(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Vec sub(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Vec mul(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Vec div(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] / b.lane[i]; });
}
/// The second operand when either is NaN.
inline Vec min(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline float max_of(float a, float b) { return a > b ? a : b; }
inline Vec max(Vec a, Vec b) {
  return each_lane([&](int i) { return max_of(a.lane[i], b.lane[i]); });
}
/// False when either is NaN.
inline Mask less(Vec a, Vec b) {
  Mask out;
  for (int i = 0; i < 16; ++i) out.lane[i] = a.lane[i] < b.lane[i];
  return out;
}
inline Vec select(Mask m, Vec a, Vec b) {
  return each_lane([&](int i) { return m.lane[i] ? a.lane[i] : b.lane[i]; });
}
/// Lanes 0..n-1 of a, then those of rest.
inline Vec keep_first(Vec a, int n, Vec rest) {
  return each_lane([&](int i) { return i < n ? a.lane[i] : rest.lane[i]; });
}

inline Words load_words(const std::byte* p) {
  Words out;
  __builtin_memcpy(&out, p, sizeof out);
  return out;
}
template <int kBits>
Words shift_left(Words a) {
  return each_word([&](int i) { return a.lane[i] << kBits; });
}
template <int kBits>
Words shift_right_signed(Words a) {
  return each_word(
      [&](int i) { return static_cast<uint32_t>(static_cast<int32_t>(a.lane[i]) >> kBits); });
}
inline Words mask_words(Words a, uint32_t bits) {
  return each_word([&](int i) { return a.lane[i] & bits; });
}
inline Words add_words(Words a, uint32_t b) {
  return each_word([&](int i) { return a.lane[i] + b; });
}
inline Vec as_floats(Words a) {
  Vec out;
  __builtin_memcpy(&out, &a, sizeof out);
  return out;
}
inline Words as_words(Vec a) {
  Words out;
  __builtin_memcpy(&out, &a, sizeof out);
  return out;
}
/// 16 little-endian halves of words, zero-extended.
inline Words widen_halves(const std::byte* p) {
  return each_word([&](int i) {
    uint16_t half;
    __builtin_memcpy(&half, p + 2 * i, sizeof half);
    return static_cast<uint32_t>(half);
  });
}
/// 16 bytes, sign-extended.
inline Words widen_signed(const std::byte* p) {
  return each_word([&](int i) {
    return static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(p[i])));
  });
}
/// 16 bytes, zero-extended.
inline Words widen_bytes(const std::byte* p) {
  return each_word([&](int i) { return static_cast<uint32_t>(p[i]); });
}

/// The 16 nibbles of 8 bytes, the low one of a byte first, zero-extended.
inline Words widen_nibbles(const std::byte* p) {
  return each_word([&](int i) { return static_cast<uint32_t>(p[i / 2]) >> (i % 2 * 4) & 15U; });
}
/// table[lane] of 16 numbers; lanes are 0..15.
inline Vec look_up(Vec table, Words index) {
  return each_lane([&](int i) { return table.lane[index.lane[i]]; });
}

/// ((lane i + lane i+8) + (the same of i+4)) and so on: a tree by halves.
inline float reduce_add(Vec a) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.lane[i] += a.lane[i + half];
  return a.lane[0];
}
inline float reduce_max(Vec a) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.lane[i] = max_of(a.lane[i], a.lane[i + half]);
  return a.lane[0];
}

/// kColumns consecutive k of a panel of 16 E2M1 rows. decode<p> gives columns 2p and 2p + 1 as the
/// values of the codes, without scale.
struct Nvfp4Unit {
  static constexpr int kColumns = 8;
  Words codes;
  static Nvfp4Unit load(const std::byte* p) { return {load_words(p)}; }
  template <int kPair>
  void decode(Vec& even, Vec& odd) const {
    constexpr float kValues[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                   -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
    even = each_lane([&](int i) { return kValues[codes.lane[i] >> (8 * kPair) & 15U]; });
    odd = each_lane([&](int i) { return kValues[codes.lane[i] >> (8 * kPair + 4) & 15U]; });
  }
};

/// 64 bytes of 16 rows, `stride` bytes apart, as 16 words of a panel [16][16].
inline void interleave_line(const std::byte* rows, int64_t stride, std::byte* out) {
  transpose_words(rows, stride, out);
}
/// 16 bytes of 16 rows as [16][16] bytes.
inline void interleave_scales(const std::byte* rows, int64_t stride, std::byte* out) {
  transpose_bytes(rows, stride, out);
}

}  // namespace
}  // namespace nibble::cpu
