// Table-free conversions by bit arithmetic; the tests walk every code.
#include "tensor/float_formats.h"

namespace nibble {

namespace {

/// Rounds a finite magnitude to `mantissa_bits` with smallest normal exponent `exponent_min`
/// (subnormals share its spacing); the result is exact in float.
float round_to_format(float magnitude, int mantissa_bits, int exponent_min) {
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = m * 2^exponent, m in [0.5, 1)
  const int spacing = std::max(exponent - 1, exponent_min) - mantissa_bits;
  return std::ldexp(std::nearbyint(std::ldexp(magnitude, -spacing)), spacing);
}

}  // namespace

float f16_to_float(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 31U;
  const uint32_t mantissa = bits & 1023U;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                        : std::ldexp(static_cast<float>(mantissa | 1024U),
                                                     static_cast<int>(exponent) - 25);
  return sign != 0 ? -magnitude : magnitude;
}

uint16_t float_to_f16(float value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000U : 0U);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7E00U);
  const float magnitude = std::isinf(value) ? value : round_to_format(std::fabs(value), 10, -14);
  if (std::fabs(magnitude) >= 65520.0F) return static_cast<uint16_t>(sign | 0x7C00U);
  if (magnitude < 0x1p-14F) {
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::ldexp(magnitude, 24)));
  }
  const int exponent = std::ilogb(magnitude);
  const auto mantissa = static_cast<uint32_t>(std::ldexp(magnitude, 10 - exponent));
  return static_cast<uint16_t>(sign | (static_cast<uint32_t>(exponent + 15) << 10) |
                               (mantissa & 1023U));
}

float e4m3_to_float(uint8_t code) {
  const uint32_t exponent = (code >> 3) & 15U;
  const uint32_t mantissa = code & 7U;
  if ((code & 0x7FU) == 0x7FU) return std::bit_cast<float>(0x7FC00000U);
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(mantissa | 8U),
                                                     static_cast<int>(exponent) - 10);
  return (code & 0x80U) != 0 ? -magnitude : magnitude;
}

uint8_t float_to_e4m3(float value) {
  const uint32_t sign = std::signbit(value) ? 0x80U : 0U;
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7FU);
  const float clamped = std::fmin(std::fabs(value), kE4m3Max);
  const float magnitude = round_to_format(clamped, 3, -6);
  if (magnitude < 0x1p-6F) {
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(std::ldexp(magnitude, 9)));
  }
  const int exponent = std::ilogb(magnitude);
  const auto mantissa = static_cast<uint32_t>(std::ldexp(magnitude, 3 - exponent));
  return static_cast<uint8_t>(sign | (static_cast<uint32_t>(exponent + 7) << 3) | (mantissa & 7U));
}

}  // namespace nibble
