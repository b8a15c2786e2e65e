// Scalar conversions of the small float formats, round to nearest even. E4M3 is the "FN" flavour:
// no infinity, 0x7F/0xFF are NaN, largest 448; encoding saturates.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace nibble {

inline float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}
inline float round_to_bf16(float value) { return bf16_to_float(float_to_bf16(value)); }

float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);

float e4m3_to_float(uint8_t code);
/// Saturates to +-448; NaN gives 0x7F.
uint8_t float_to_e4m3(float value);
/// The same of a finite number, fast enough for every weight of a model: adds a power of two whose
/// last place is the step of the target, and the addition rounds to nearest even.
inline uint8_t finite_to_e4m3(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 24 & 0x80U;
  const float magnitude = std::min(std::bit_cast<float>(bits & 0x7FFFFFFFU), 448.0F);
  // Exponent of the step: 3 bits below the leading one, never below 2^-9.
  const uint32_t exponent = std::max(std::bit_cast<uint32_t>(magnitude) >> 23, 121U);
  const float anchor = std::bit_cast<float>((exponent + 20) << 23);  // last place: 2^(e - 3)
  const float rounded = (magnitude + anchor) - anchor;
  const uint32_t r = std::bit_cast<uint32_t>(rounded);
  const bool normal = rounded >= 0x1p-6F;
  const uint32_t code = normal ? (r >> 20) - (120U << 3) : static_cast<uint32_t>(rounded * 512.0F);
  return static_cast<uint8_t>(sign | code);
}

inline constexpr float kE2m1Values[8] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
/// code = sign << 3 | index into kE2m1Values.
inline float e2m1_to_float(uint8_t code) {
  const float magnitude = kE2m1Values[code & 7U];
  return (code & 8U) != 0 ? -magnitude : magnitude;
}
/// Nearest, ties to the even code, saturates to +-6. A negative number that rounds to zero keeps
/// its sign bit (0x8), as the hardware conversion does. NaN must not come here.
inline uint8_t float_to_e2m1(float value) {
  const float x = std::fabs(value);
  int index = 0;
  index += x > 0.25F;
  index += x >= 0.75F;
  index += x > 1.25F;
  index += x >= 1.75F;
  index += x > 2.5F;
  index += x >= 3.5F;
  index += x > 5.0F;
  return static_cast<uint8_t>(index | (std::signbit(value) ? 8 : 0));
}

inline constexpr float kE4m3Max = 448.0F;
inline constexpr float kE2m1Max = 6.0F;

}  // namespace nibble
