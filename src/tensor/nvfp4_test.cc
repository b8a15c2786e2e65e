// NVFP4 by exhaustion: every BF16 value under every positive E4M3 scale, against a search for the
// nearest of the eight magnitudes. Parity with Python packages is codec_test.cc.
#include "tensor/nvfp4.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "tensor/float_formats.h"

namespace nibble {
namespace {

constexpr GlobalScale kOne = {.value = 1.0F, .direction = GlobalScale::Direction::multiply};

/// Nearest of the eight magnitudes times `scale`, ties to the even code. Both factors have few
/// bits, so the distances of near candidates are exact in double.
uint8_t nearest_code(double x, double scale) {
  const double magnitude = std::min(std::fabs(x), 6.0 * scale);
  uint8_t best = 0;
  double best_distance = magnitude;
  for (uint8_t code = 1; code < 8; ++code) {
    const double distance = std::fabs(magnitude - static_cast<double>(kE2m1Values[code]) * scale);
    const bool even_tie = distance == best_distance && code % 2 == 0;
    if (distance < best_distance || even_tie) best = code;
    best_distance = std::min(distance, best_distance);
  }
  return static_cast<uint8_t>(best | (x < 0 ? 8 : 0));
}

TEST(Nvfp4, EveryBf16ValueUnderEveryScale) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = bf16_to_float(static_cast<uint16_t>(bits));
    values.push_back(std::isfinite(x) ? x : std::copysign(0x1p127F, x));
  }
  std::vector<uint8_t> codes(values.size() / 2);
  int64_t wrong = 0;
  for (int scale = 1; scale <= 126; ++scale) {
    const auto code = static_cast<uint8_t>(scale);
    const std::vector<uint8_t> scales(values.size() / 16, code);
    const double real = static_cast<double>(e4m3_to_float(code));
    encode_nvfp4_row(values.data(), scales.data(), kOne, 65536, codes.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint8_t found = i % 2 == 0 ? codes[i / 2] & 15U : codes[i / 2] >> 4;
      const uint8_t expected = nearest_code(static_cast<double>(values[i]), real);
      if (found != expected && wrong++ == 0) {
        ADD_FAILURE() << values[i] << " under " << real << ": expected " << int{expected}
                      << ", found " << int{found};
      }
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Nvfp4, EveryByteUnderEveryScaleDecodes) {
  for (int scale = 0; scale < 127; ++scale) {
    const std::array<uint8_t, 16> scales = [&] {
      std::array<uint8_t, 16> filled = {};
      filled.fill(static_cast<uint8_t>(scale));
      return filled;
    }();
    std::array<uint8_t, 128> codes = {};
    std::array<float, 256> out = {};
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 128; ++i)
        codes[static_cast<size_t>(i)] = static_cast<uint8_t>(half * 128 + i);
      decode_nvfp4_row(codes.data(), scales.data(), kOne, 256, out.data());
      for (size_t i = 0; i < 128; ++i) {
        const float real = e4m3_to_float(static_cast<uint8_t>(scale));
        ASSERT_EQ(out[2 * i], e2m1_to_float(codes[i] & 15U) * real);
        ASSERT_EQ(out[2 * i + 1], e2m1_to_float(codes[i] >> 4) * real);
      }
    }
  }
}

TEST(Nvfp4, DecodedValuesEncodeToTheSameCodes) {
  const GlobalScale global = {.value = 0.037F, .direction = GlobalScale::Direction::divide};
  std::array<uint8_t, 8> codes = {0x10, 0x32, 0x54, 0x76, 0x90, 0xBA, 0xDC, 0xFE};
  for (int scale = 1; scale < 127; ++scale) {
    const auto code = static_cast<uint8_t>(scale);
    std::array<float, 16> values = {};
    std::array<uint8_t, 8> again = {};
    decode_nvfp4_row(codes.data(), &code, global, 16, values.data());
    encode_nvfp4_block(values.data(), code, global, again.data());
    ASSERT_EQ(codes, again) << scale;
  }
}

TEST(Nvfp4, AmaxScalesOfBothDialects) {
  const auto divide = GlobalScale::Direction::divide;
  const auto multiply = GlobalScale::Direction::multiply;
  const GlobalScale ct = nvfp4_global_scale(3.0F, divide, SourceType::f32);
  const GlobalScale mo = nvfp4_global_scale(3.0F, multiply, SourceType::f32);
  EXPECT_FLOAT_EQ(ct.value, 896.0F);
  EXPECT_FLOAT_EQ(mo.value, 3.0F / 2688.0F);
  for (const float amax : {3.0F, 1.0F, 0.1F, 0.003F}) {
    EXPECT_EQ(nvfp4_amax_scale(amax, ct, SourceType::f32),
              nvfp4_amax_scale(amax, mo, SourceType::f32));
  }
  EXPECT_EQ(nvfp4_amax_scale(3.0F, ct, SourceType::f32), 0x7E) << "the largest block gets 448";
  EXPECT_EQ(nvfp4_amax_scale(9.0F, ct, SourceType::f32), 0x7E) << "saturates";
  EXPECT_EQ(e4m3_to_float(nvfp4_amax_scale(0.0F, ct, SourceType::f32)), 0.125F);
  EXPECT_EQ(e4m3_to_float(nvfp4_amax_scale(0.0F, mo, SourceType::f32)), 1.0F);
  EXPECT_EQ(e4m3_to_float(nvfp4_amax_scale(1e-9F, mo, SourceType::f32)), 0x1p-9F);
  EXPECT_EQ(nvfp4_amax_scale(std::nanf(""), mo, SourceType::f32), 0x7F);
  // A file may have scales that are no use, such as a multiplier of zero.
  EXPECT_EQ(nvfp4_amax_scale(0.0F, {INFINITY, divide}, SourceType::bf16), 0x7F);
  EXPECT_EQ(nvfp4_amax_scale(INFINITY, {0.0F, divide}, SourceType::f32), 0x7F);
  EXPECT_EQ(nvfp4_amax_scale(INFINITY, {INFINITY, multiply}, SourceType::f32), 0x7F);
  for (const float amax : {0.0F, std::nanf(""), INFINITY}) {
    EXPECT_EQ(nvfp4_global_scale(amax, divide, SourceType::bf16).value, 1.0F);
    EXPECT_EQ(nvfp4_global_scale(amax, multiply, SourceType::f32).value, 1.0F);
  }
}

TEST(Nvfp4, ZerosAndSigns) {
  std::array<float, 16> x = {};
  x[0] = -0.0F;
  x[1] = -0.01F;
  x[2] = -6.0F;
  std::array<uint8_t, 8> codes = {};
  encode_nvfp4_block(x.data(), 0x38, kOne, codes.data());
  EXPECT_EQ(codes[0], 0x80) << "-0 is 0, a negative that rounds to zero keeps its sign";
  EXPECT_EQ(codes[1], 0x0F);
  encode_nvfp4_block(x.data(), 0x00, kOne, codes.data());
  EXPECT_EQ(codes[1], 0x00) << "a zero scale has only zero codes";
}

}  // namespace
}  // namespace nibble
