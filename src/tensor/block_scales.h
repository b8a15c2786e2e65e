// The positive E4M3 codes as scales of NVFP4 blocks: their values, and the code at a value. Host
// and device compute them alike.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define NIBBLE_SCALE_FN __host__ __device__ __forceinline__
#else
#define NIBBLE_SCALE_FN inline __attribute__((always_inline))
#endif

namespace nibble {

/// Scale codes 0..143: value and rounded reciprocal; codes above 126 repeat 448, so that 16 codes
/// can be read from any place and those never win.
struct BlockScaleTables {
  alignas(64) std::array<float, 144> scale;
  alignas(64) std::array<float, 144> reciprocal;
};

constexpr BlockScaleTables make_block_scale_tables() {
  BlockScaleTables tables = {};
  for (size_t code = 0; code < 144; ++code) {
    const size_t held = code < 126 ? code : 126;
    const auto exponent = static_cast<int>(held >> 3);
    float value = static_cast<float>(exponent == 0 ? held : 8 + (held & 7U));
    for (int i = 0; i < 9; ++i) value *= 0.5F;
    for (int i = 1; i < exponent; ++i) value *= 2.0F;
    tables.scale[code] = value;
    tables.reciprocal[code] = held == 0 ? 0.0F : 1.0F / value;
  }
  return tables;
}

/// The largest code whose value is at most `value`; 0 below the least, 126 above the greatest.
NIBBLE_SCALE_FN int scale_code_at_or_below(float value) {
  if (value >= 448.0F) return 126;
  if (value < 0x1p-6F) return static_cast<int>(value * 0x1p9F);
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<int>((bits >> 20) - (120U << 3));
}

/// The first code that a search for the scale of a block with this largest weight looks at.
NIBBLE_SCALE_FN int first_scale_code(float amax) {
  const int below = scale_code_at_or_below(amax * (1.0F / 8.5F));
  return below < 1 ? 1 : below;
}

}  // namespace nibble
