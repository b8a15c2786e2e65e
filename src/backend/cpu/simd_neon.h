// Vec on NEON of 64-bit ARM: four q registers. The contract of these names is written once, in
// simd_scalar.h. Included by kernels_neon.cc and kernels_i8mm.cc alone.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/transpose.h"

namespace nibble::cpu {
namespace {

constexpr const char* kIsaName = "neon";
constexpr int kRowsPerTile = 6;  // of the blocked product; 24 of 32 registers accumulate
constexpr int kPanelsPerTile = 1;
constexpr int kPanelsDirect = 4;  // of the one-row product: 16 chains hide the latency of FMA
constexpr int kPanelsFewRows = 1;
constexpr int kQueriesPerTile = 1;

struct Vec {  // members have names because GCC 12 keeps arrays of registers in memory
  float32x4_t a, b, c, d;
};
struct Words {
  uint32x4_t a, b, c, d;
};
struct Mask {
  uint32x4_t a, b, c, d;
};

/// f of the four registers of each input.
template <typename Out, typename F, typename... In>
inline Out quarters(const F& f, In... in) {
  return {f(in.a...), f(in.b...), f(in.c...), f(in.d...)};
}

inline Vec broadcast(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {v, v, v, v};
}
inline Vec zero() { return broadcast(0.0F); }
inline Vec load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
inline void store(float* p, Vec v) {
  vst1q_f32(p, v.a);
  vst1q_f32(p + 4, v.b);
  vst1q_f32(p + 8, v.c);
  vst1q_f32(p + 12, v.d);
}
/// NEON has no masked load or store: a part of a vector goes through memory of 16 lanes.
inline Vec load_n(const float* p, int n) {
  if (n == 16) return load(p);
  float lanes[16] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
inline void store_n(float* p, Vec v, int n) {
  if (n == 16) return store(p, v);
  float lanes[16];
  store(lanes, v);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return quarters<Vec>([](auto x, auto y, auto z) { return vfmaq_f32(z, x, y); }, a, b, c);
}
inline Vec add(Vec a, Vec b) { return quarters<Vec>(vaddq_f32, a, b); }
inline Vec sub(Vec a, Vec b) { return quarters<Vec>(vsubq_f32, a, b); }
inline Vec mul(Vec a, Vec b) { return quarters<Vec>(vmulq_f32, a, b); }
inline Vec div(Vec a, Vec b) { return quarters<Vec>(vdivq_f32, a, b); }
/// FMIN and FMAX give NaN for NaN; the contract is the second operand.
inline float32x4_t min_quarter(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcltq_f32(a, b), a, b);
}
inline float32x4_t max_quarter(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
inline Vec min(Vec a, Vec b) { return quarters<Vec>(min_quarter, a, b); }
inline Vec max(Vec a, Vec b) { return quarters<Vec>(max_quarter, a, b); }
inline Mask less(Vec a, Vec b) { return quarters<Mask>(vcltq_f32, a, b); }
inline Vec select(Mask m, Vec a, Vec b) { return quarters<Vec>(vbslq_f32, m, a, b); }
inline Vec keep_first(Vec a, int n, Vec rest) {
  constexpr int32_t kFour[4] = {0, 1, 2, 3};
  const int32x4_t lanes = vld1q_s32(kFour);
  const auto first = [&](int begin) { return vcltq_s32(lanes, vdupq_n_s32(n - begin)); };
  return select({first(0), first(4), first(8), first(12)}, a, rest);
}

inline uint8x16_t load_16_bytes(const std::byte* p) {
  return vld1q_u8(reinterpret_cast<const uint8_t*>(p));
}
inline Words load_words(const std::byte* p) {
  const auto word = [&](int at) { return vreinterpretq_u32_u8(load_16_bytes(p + at)); };
  return {word(0), word(16), word(32), word(48)};
}
template <int kBits>
Words shift_left(Words a) {
  return quarters<Words>([](uint32x4_t x) { return vshlq_n_u32(x, kBits); }, a);
}
template <int kBits>
Words shift_right_signed(Words a) {
  return quarters<Words>(
      [](uint32x4_t x) {
        return vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(x), kBits));
      },
      a);
}
inline Words mask_words(Words a, uint32_t bits) {
  return quarters<Words>([&](uint32x4_t x) { return vandq_u32(x, vdupq_n_u32(bits)); }, a);
}
inline Words add_words(Words a, uint32_t b) {
  return quarters<Words>([&](uint32x4_t x) { return vaddq_u32(x, vdupq_n_u32(b)); }, a);
}
inline Vec as_floats(Words a) { return quarters<Vec>(vreinterpretq_f32_u32, a); }
inline Words as_words(Vec a) { return quarters<Words>(vreinterpretq_u32_f32, a); }
inline Words widen_halves(const std::byte* p) {
  const uint16x8_t low = vreinterpretq_u16_u8(load_16_bytes(p));
  const uint16x8_t high = vreinterpretq_u16_u8(load_16_bytes(p + 16));
  return {vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low), vmovl_u16(vget_low_u16(high)),
          vmovl_high_u16(high)};
}
inline Words widen_signed(const std::byte* p) {
  const int8x16_t bytes = vreinterpretq_s8_u8(load_16_bytes(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes));
  const int16x8_t high = vmovl_high_s8(bytes);
  const auto word = [](int32x4_t v) { return vreinterpretq_u32_s32(v); };
  return {word(vmovl_s16(vget_low_s16(low))), word(vmovl_high_s16(low)),
          word(vmovl_s16(vget_low_s16(high))), word(vmovl_high_s16(high))};
}
inline Words widen_16(uint8x16_t bytes) {
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes));
  const uint16x8_t high = vmovl_high_u8(bytes);
  return {vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low), vmovl_u16(vget_low_u16(high)),
          vmovl_high_u16(high)};
}
inline Words widen_bytes(const std::byte* p) { return widen_16(load_16_bytes(p)); }

inline Words widen_nibbles(const std::byte* p) {
  const uint8x8_t bytes = vld1_u8(reinterpret_cast<const uint8_t*>(p));
  const uint8x8_t low = vand_u8(bytes, vdup_n_u8(15));
  const uint8x8_t high = vshr_n_u8(bytes, 4);
  return widen_16(vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high)));
}
/// The table is 64 bytes, and lane n of it the bytes 4 n .. 4 n + 3.
inline Vec look_up(Vec table, Words index) {
  const uint8x16x4_t all = {{vreinterpretq_u8_f32(table.a), vreinterpretq_u8_f32(table.b),
                             vreinterpretq_u8_f32(table.c), vreinterpretq_u8_f32(table.d)}};
  return quarters<Vec>(
      [&](uint32x4_t lane) {
        const uint32x4_t places =
            vmlaq_u32(vdupq_n_u32(0x03020100U), lane, vdupq_n_u32(0x04040404U));
        return vreinterpretq_f32_u8(vqtbl4q_u8(all, vreinterpretq_u8_u32(places)));
      },
      index);
}

inline float reduce_add(Vec v) {
  const float32x4_t by4 = vaddq_f32(vaddq_f32(v.a, v.c), vaddq_f32(v.b, v.d));
  const float32x2_t by2 = vadd_f32(vget_low_f32(by4), vget_high_f32(by4));
  return vget_lane_f32(by2, 0) + vget_lane_f32(by2, 1);
}
inline float reduce_max(Vec v) {
  const float32x4_t by4 = max_quarter(max_quarter(v.a, v.c), max_quarter(v.b, v.d));
  const float32x4_t by2 = max_quarter(by4, vextq_f32(by4, by4, 2));
  return vgetq_lane_f32(max_quarter(by2, vextq_f32(by2, by2, 1)), 0);
}

/// Nibbles of one word are eight consecutive k of one lane. Their bits moved to the F32 fields are
/// the value times 2^-126; the multiplication makes subnormals right too.
struct Nvfp4Unit {
  static constexpr int kColumns = 8;
  Words codes;
  static Nvfp4Unit load(const std::byte* p) { return {load_words(p)}; }
  template <int kNibble>
  Vec column() const {
    const Words fields = shift_right_signed<6>(shift_left<28 - 4 * kNibble>(codes));
    return mul(as_floats(mask_words(fields, 0x81C00000U)), broadcast(0x1p126F));
  }
  template <int kPair>
  void decode(Vec& even, Vec& odd) const {
    even = column<2 * kPair>();
    odd = column<2 * kPair + 1>();
  }
};

inline void interleave_line(const std::byte* rows, int64_t stride, std::byte* out) {
  transpose_words(rows, stride, out);
}
inline void interleave_scales(const std::byte* rows, int64_t stride, std::byte* out) {
  transpose_bytes(rows, stride, out);
}

}  // namespace
}  // namespace nibble::cpu
