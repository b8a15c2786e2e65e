// Inputs in NVFP4: which scale a block gets, and what spoils one. Parity with Python packages is
// codec_test.cc.
#include "tensor/activation_codec.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <span>

namespace nibble {
namespace {

TEST(ActivationCodec, ModelOptScalesAreInverted) {
  const GlobalScale file = {.value = 0.25F, .direction = GlobalScale::Direction::multiply};
  EXPECT_EQ(activation_global_scale(file).value, 4.0F);
  std::array<float, 16> x = {};
  x[3] = 1.5F;
  x[4] = -0.2F;
  std::array<float, 16> a = {};
  std::array<float, 16> b = {};
  const GlobalScale inverse = {.value = 4.0F, .direction = GlobalScale::Direction::divide};
  round_nvfp4_activations(x.data(), {.global = file}, 16, a.data());
  round_nvfp4_activations(x.data(), {.global = inverse}, 16, b.data());
  EXPECT_EQ(a, b);
  EXPECT_EQ(a[3], 1.5F);
}

/// The sum of squared errors of x under a scale, in double, by the nearest codes.
double error_under(std::span<const float, 16> x, uint8_t scale, GlobalScale global) {
  std::array<uint8_t, 8> codes = {};
  std::array<float, 16> values = {};
  encode_nvfp4_block(x.data(), scale, global, codes.data());
  decode_nvfp4_row(codes.data(), &scale, global, 16, values.data());
  double sum = 0.0;
  for (size_t i = 0; i < 16; ++i) sum += std::pow(double{values[i]} - x[i], 2);
  return sum;
}

TEST(ActivationCodec, FourOverSixTakesTheBetterScale) {
  constexpr int kBlocks = 2000;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const GlobalScale global = {.value = 600.0F, .direction = GlobalScale::Direction::divide};
  int fours = 0;
  for (int block = 0; block < kBlocks; ++block) {
    std::array<float, 16> x = {};
    float amax = 0.0F;
    for (float& value : x) amax = std::max(amax, std::fabs(value = normal(random)));
    std::array<uint8_t, 8> codes = {};
    uint8_t scale = 0;
    encode_nvfp4_activations(x.data(), {.global = global, .scales = InputScales::four_over_six}, 16,
                             codes.data(), &scale);
    const uint8_t six = nvfp4_amax_scale(amax, global, SourceType::f32);
    const uint8_t four = nvfp4_amax_scale(1.5F * amax, global, SourceType::f32);
    const double of_six = error_under(x, six, global);
    const double of_four = error_under(x, four, global);
    if (std::fabs(of_six - of_four) < 1e-5 * of_six) continue;  // F32 may see it otherwise
    EXPECT_EQ(scale, of_four < of_six ? four : six) << block;
    std::array<uint8_t, 8> expected = {};
    encode_nvfp4_block(x.data(), scale, global, expected.data());
    EXPECT_EQ(codes, expected) << block;
    fours += scale == four && four != six ? 1 : 0;
  }
  EXPECT_GT(fours, kBlocks / 4);
  EXPECT_LT(fours, kBlocks * 3 / 4);
}

TEST(ActivationCodec, FourOverSixWhereItMatters) {
  const GlobalScale global = {.value = 1.0F, .direction = GlobalScale::Direction::divide};
  // Under amax / 6 = 1 the number 4.5 becomes 4; under amax / 4 = 1.5 both are codes, 4 and 3.
  std::array<float, 16> x = {6.0F, 4.5F};
  std::array<float, 16> out = {};
  round_nvfp4_activations(x.data(), {.global = global}, 16, out.data());
  EXPECT_EQ(out[1], 4.0F);
  round_nvfp4_activations(x.data(), {.global = global, .scales = InputScales::four_over_six}, 16,
                          out.data());
  EXPECT_EQ(out[0], 6.0F);
  EXPECT_EQ(out[1], 4.5F);
  // Numbers that are exact already stay so, and a scale that would be more than 448 is no gain.
  x = {6.0F, 4.0F, 0.5F};
  round_nvfp4_activations(x.data(), {.global = global, .scales = InputScales::four_over_six}, 16,
                          out.data());
  EXPECT_EQ(out, x);
  x = {2688.0F, 2016.0F};
  round_nvfp4_activations(x.data(), {.global = global, .scales = InputScales::four_over_six}, 16,
                          out.data());
  EXPECT_EQ(out[0], 2688.0F);
}

TEST(ActivationCodec, OneNanTakesItsBlockAlong) {
  std::array<float, 32> x = {};
  x.fill(1.0F);
  x[5] = std::nanf("");
  const GlobalScale global = {.value = 1.0F, .direction = GlobalScale::Direction::divide};
  for (const InputScales scales : {InputScales::amax, InputScales::four_over_six}) {
    std::array<float, 32> out = {};
    round_nvfp4_activations(x.data(), {.global = global, .scales = scales}, 32, out.data());
    for (size_t i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(out[i]));
    for (size_t i = 16; i < 32; ++i) EXPECT_FALSE(std::isnan(out[i]));
  }
}

}  // namespace
}  // namespace nibble
