// Where compressed-tensors rounds to the dtype of its tensors, so do we: on BF16 tensors amax/6 and
// FP8's quotient, scale and product are BF16; the NVFP4 quotient and product are F32 there, because
// the stored global scale is F32 and wins the type promotion.
#include "tensor/activation_codec.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "tensor/float_formats.h"
#include "tensor/fp8.h"

namespace nibble {

namespace {

float round_to(SourceType source, float value) {
  return source == SourceType::bf16 ? round_to_bf16(value) : value;
}

/// NaN if any element is.
float amax_of(const float* x, int64_t count) {
  float amax = 0.0F;
  bool nan = false;
  for (int64_t i = 0; i < count; ++i) {
    nan |= std::isnan(x[i]);
    amax = std::max(amax, std::fabs(x[i]));
  }
  return nan ? std::nanf("") : amax;
}

constexpr float kSixOverFour = 1.5F;

/// The sum of squared errors of a block, in the order that the header states.
float squared_error(const float* x, const uint8_t* codes, uint8_t scale, GlobalScale global) {
  std::array<float, kNvfp4Group> values;
  decode_nvfp4_row(codes, &scale, global, kNvfp4Group, values.data());
  for (size_t i = 0; i < values.size(); ++i) values[i] = (values[i] - x[i]) * (values[i] - x[i]);
  std::array<float, 4> sums;
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = (values[2 * i] + values[2 * i + 1]) + (values[2 * i + 8] + values[2 * i + 9]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// Takes `wanted` in place of `scale` if the codes under it have the smaller error.
void try_scale(const float* x, uint8_t wanted, GlobalScale global, uint8_t& scale, uint8_t* codes) {
  std::array<uint8_t, kNvfp4Group / 2> other;
  encode_nvfp4_block(x, wanted, global, other.data());
  if (squared_error(x, other.data(), wanted, global) < squared_error(x, codes, scale, global)) {
    scale = wanted;
    std::copy(other.begin(), other.end(), codes);
  }
}

/// One run under one scale. The zero point that is added turns -0 into 0.
void round_fp8_run(const float* x, float scale, SourceType source, int64_t count, float* out) {
  const auto& values = e4m3_values();
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t code = float_to_e4m3(round_to(source, x[i] / scale) + 0.0F);
    out[i] = round_to(source, values[code] * scale);
  }
}

}  // namespace

GlobalScale activation_global_scale(GlobalScale file_scale) {
  const bool divide = file_scale.direction == GlobalScale::Direction::divide;
  return {.value = divide ? file_scale.value : 1.0F / file_scale.value,
          .direction = GlobalScale::Direction::divide};
}

std::string_view input_scales_name(InputScales scales) {
  return scales == InputScales::amax ? "amax" : "four-over-six";
}

void encode_nvfp4_activations(const float* x, const Nvfp4Inputs& inputs, int64_t cols,
                              uint8_t* codes, uint8_t* scales) {
  CHECK(cols >= 0 && cols % kNvfp4Group == 0, cols, " columns");
  const GlobalScale global = activation_global_scale(inputs.global);
  for (int64_t block = 0; block < cols / kNvfp4Group; ++block) {
    const float* values = x + block * kNvfp4Group;
    uint8_t* block_codes = codes + block * kNvfp4Group / 2;
    const float amax = amax_of(values, kNvfp4Group);
    scales[block] = nvfp4_amax_scale(amax, global, inputs.source);
    if (std::isnan(amax)) {
      std::fill_n(block_codes, kNvfp4Group / 2, uint8_t{0});
      continue;
    }
    encode_nvfp4_block(values, scales[block], global, block_codes);
    if (inputs.scales == InputScales::four_over_six)
      try_scale(values, nvfp4_amax_scale(kSixOverFour * amax, global, inputs.source), global,
                scales[block], block_codes);
  }
}

void round_nvfp4_activations(const float* x, const Nvfp4Inputs& inputs, int64_t cols, float* out) {
  CHECK(cols >= 0 && cols % kNvfp4Group == 0, cols, " columns");
  const Nvfp4Inputs each{.global = activation_global_scale(inputs.global),
                         .source = inputs.source,
                         .scales = inputs.scales};
  for (int64_t begin = 0; begin < cols; begin += kNvfp4Group) {
    std::array<uint8_t, kNvfp4Group / 2> codes = {};
    uint8_t scale = 0;
    encode_nvfp4_activations(x + begin, each, kNvfp4Group, codes.data(), &scale);
    decode_nvfp4_row(codes.data(), &scale, each.global, kNvfp4Group, out + begin);
    if (inputs.source == SourceType::f32) continue;
    for (int64_t i = begin; i < begin + kNvfp4Group; ++i) out[i] = round_to_bf16(out[i]);
  }
}

float fp8_dynamic_scale(float amax, SourceType source) {
  constexpr float kF32Epsilon = 0x1p-23F;
  constexpr float kBf16Epsilon = 0x1p-7F;
  const float scale = round_to(source, amax / kE4m3Max);
  if (scale != 0.0F) return scale;
  return source == SourceType::bf16 ? kBf16Epsilon : kF32Epsilon;
}

void round_fp8_dynamic(const float* x, SourceType source, int64_t group, int64_t cols, float* out) {
  CHECK(group > 0, group);
  for (int64_t begin = 0; begin < cols; begin += group) {
    const int64_t count = std::min(group, cols - begin);
    const float scale = fp8_dynamic_scale(amax_of(x + begin, count), source);
    round_fp8_run(x + begin, scale, source, count, out + begin);
  }
}

void round_fp8_static(const float* x, float scale, SourceType source, int64_t cols, float* out) {
  round_fp8_run(x, scale, source, cols, out);
}

}  // namespace nibble
