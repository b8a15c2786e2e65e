// Formulas: docs/formats.md; order of operations as in compressed-tensors and ModelOpt.
#include "tensor/nvfp4.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "tensor/float_formats.h"

namespace nibble {

namespace {

constexpr uint8_t kE4m3Nan = 0x7F;
constexpr uint8_t kE4m3Smallest = 0x01;  // 2^-9
constexpr uint8_t kE4m3Eighth = 0x20;
constexpr uint8_t kE4m3One = 0x38;

float round_to(SourceType source, float value) {
  return source == SourceType::bf16 ? round_to_bf16(value) : value;
}

void check_columns(int64_t cols) { CHECK(cols >= 0 && cols % kNvfp4Group == 0, cols, " columns"); }

/// NaN if any element is: magnitudes order as their bits do, and a NaN is above all of them.
float block_amax(const float* x) {
  uint32_t most = 0;
  for (int i = 0; i < kNvfp4Group; ++i)
    most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFU);
  return std::bit_cast<float>(most);
}

}  // namespace

GlobalScale nvfp4_global_scale(float amax, GlobalScale::Direction direction, SourceType source) {
  const bool divide = direction == GlobalScale::Direction::divide;
  // torch divides a number by a tensor as reciprocal times number, both rounded.
  const float reciprocal = round_to(source, 1.0F / amax);
  const float value =
      divide ? round_to(source, reciprocal * kNvfp4AmaxOverGlobal) : amax / kNvfp4AmaxOverGlobal;
  const bool usable = std::isfinite(value) && value > 0.0F;
  return {.value = usable ? value : 1.0F, .direction = direction};
}

uint8_t nvfp4_amax_scale(float amax, GlobalScale global, SourceType source) {
  const bool divide = global.direction == GlobalScale::Direction::divide;
  if (!divide && amax == 0.0F) return kE4m3One;
  const float scale =
      divide ? global.value * round_to(source, amax / kE2m1Max) : amax / (kE2m1Max * global.value);
  if (std::isnan(scale)) return kE4m3Nan;
  const uint8_t code = finite_to_e4m3(scale);
  if (divide) return code == 0 ? kE4m3Eighth : code;
  return std::max(code, kE4m3Smallest);
}

void encode_nvfp4_block(const float* x, uint8_t scale, GlobalScale global, uint8_t* codes) {
  const float real_scale = global.apply(e4m3_to_float(scale));
  if (real_scale == 0.0F) {
    std::fill_n(codes, kNvfp4Group / 2, uint8_t{0});
    return;
  }
  std::array<uint32_t, kNvfp4Group> each = {};  // as wide as the numbers: a vector's
  for (size_t i = 0; i < each.size(); ++i)
    each[i] = float_to_e2m1(x[i] / real_scale + 0.0F);  // + 0 turns -0 into 0
  for (size_t i = 0; i < each.size(); i += 2)
    codes[i / 2] = static_cast<uint8_t>(each[i] | each[i + 1] << 4);
}

void encode_nvfp4_row(const float* x, const uint8_t* scales, GlobalScale global, int64_t cols,
                      uint8_t* codes) {
  check_columns(cols);
  for (int64_t block = 0; block < cols / kNvfp4Group; ++block) {
    encode_nvfp4_block(x + block * kNvfp4Group, scales[block], global,
                       codes + block * kNvfp4Group / 2);
  }
}

void nvfp4_amax_scales_row(const float* x, GlobalScale global, SourceType source, int64_t cols,
                           uint8_t* scales) {
  check_columns(cols);
  for (int64_t block = 0; block < cols / kNvfp4Group; ++block) {
    scales[block] = nvfp4_amax_scale(block_amax(x + block * kNvfp4Group), global, source);
  }
}

void decode_nvfp4_row(const uint8_t* codes, const uint8_t* scales, GlobalScale global, int64_t cols,
                      float* out) {
  check_columns(cols);
  for (int64_t block = 0; block < cols / kNvfp4Group; ++block) {
    const float real_scale = global.apply(e4m3_to_float(scales[block]));
    for (int64_t j = block * kNvfp4Group / 2; j < (block + 1) * kNvfp4Group / 2; ++j) {
      out[2 * j] = e2m1_to_float(codes[j] & 15U) * real_scale;
      out[2 * j + 1] = e2m1_to_float(codes[j] >> 4) * real_scale;
    }
  }
}

}  // namespace nibble
