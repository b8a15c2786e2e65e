// Rounding of one number to E4M3, fast enough for every weight of a model.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tensor/float_formats.h"

namespace nibble::detail {

/// E4M3 of |x| <= 448 after saturation, by adding a power of two whose last place is the step of
/// the target: the addition rounds to nearest even. Equal to float_to_e4m3 for every finite x.
inline uint8_t fast_e4m3(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 24 & 0x80U;
  const float magnitude = std::min(std::bit_cast<float>(bits & 0x7FFFFFFFU), kE4m3Max);
  // Exponent of the step: 3 bits below the leading one, never below 2^-9.
  const uint32_t exponent = std::max(std::bit_cast<uint32_t>(magnitude) >> 23, 121U);
  const float anchor = std::bit_cast<float>((exponent + 20) << 23);  // last place: 2^(e - 3)
  const float rounded = (magnitude + anchor) - anchor;
  const uint32_t r = std::bit_cast<uint32_t>(rounded);
  const bool normal = rounded >= 0x1p-6F;
  const uint32_t code = normal ? (r >> 20) - (120U << 3) : static_cast<uint32_t>(rounded * 512.0F);
  return static_cast<uint8_t>(sign | code);
}

}  // namespace nibble::detail
