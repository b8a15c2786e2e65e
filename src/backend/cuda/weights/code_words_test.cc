// Codes as they lie in device words, against the values they stand for. No card takes part.
#include "backend/cuda/weights/code_words.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "backend/cuda/weights/fp8_bytes.h"

namespace nibble::cuda {
namespace {

constexpr float kE2m1Values[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                   -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

float e4m3_value(uint32_t code) {
  const int exponent = static_cast<int>(code >> 3 & 15U);
  const auto fraction = static_cast<float>(code & 7U);
  const float size =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8.0F + fraction, exponent - 10);
  return (code & 0x80U) != 0 ? -size : size;
}

/// The low (0) or high (1) half of a pair, a BF16.
float half_of(uint32_t pair, int half) { return std::bit_cast<float>(pair >> (16 * half) << 16); }
bool same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

TEST(CodeWords, EveryE2m1CodeWidensToItsValueWhateverLiesBesideIt) {
  std::mt19937 random(1);
  for (int i = 0; i < 50000; ++i) {
    const auto codes = static_cast<uint32_t>(random());
    const uint32_t word = lay_e2m1(codes);
    for (int column = 0; column < 8; ++column) {
      const uint32_t code = codes >> (4 * column) & 15U;
      ASSERT_EQ(e2m1_code(&word, column), code);
      const float value = half_of(e2m1_pairs(word).of[column % 4], column / 4) * 0x1p126F;
      ASSERT_TRUE(same(value, kE2m1Values[code])) << "column " << column << ", codes " << codes;
    }
  }
}

TEST(CodeWords, EveryE4m3CodeWidensToItsValueWhateverLiesBesideIt) {
  std::mt19937 random(2);
  for (int i = 0; i < 50000; ++i) {
    const uint32_t file[2] = {static_cast<uint32_t>(random()), static_cast<uint32_t>(random())};
    const E4m3Words words = lay_e4m3(file[0], file[1]);
    for (int column = 0; column < 8; ++column) {
      const uint32_t code = file[column / 4] >> (8 * (column % 4)) & 0xFFU;
      ASSERT_EQ(e4m3_code(words.of, column), code);
      const uint32_t pair = e4m3_pairs(words.of[column % 4 / 2]).of[column % 2];
      if ((code & 0x7FU) == 0x7FU) continue;  // NaN: the loader refuses it
      ASSERT_TRUE(same(half_of(pair, column / 4) * 0x1p120F, e4m3_value(code)))
          << "column " << column << ", code " << code;
    }
  }
}

TEST(CodeWords, NibblesAreTheCodesInAnOrderOfTheirOwn) {
  for (int i = 0; i < 8; ++i) ASSERT_EQ(fp4_nibble(fp4_column(i)), i);
  std::mt19937 random(3);
  for (int i = 0; i < 50000; ++i) {
    const auto codes = static_cast<uint32_t>(random());
    const uint32_t nibbles = e2m1_nibbles(lay_e2m1(codes));
    for (int column = 0; column < 8; ++column)
      ASSERT_EQ(nibbles >> (4 * fp4_nibble(column)) & 15U, codes >> (4 * column) & 15U)
          << "column " << column << ", codes " << codes;
  }
}

TEST(CodeWords, BytesAreTheCodesInAnOrderOfTheirOwn) {
  for (int i = 0; i < 8; ++i) ASSERT_EQ(fp8_column(fp8_column(i)), i);
  std::mt19937 random(4);
  for (int i = 0; i < 50000; ++i) {
    const auto low = static_cast<uint32_t>(random());
    const auto high = static_cast<uint32_t>(random());
    const E4m3Words laid = lay_e4m3(low, high);
    for (int column = 0; column < 8; ++column) {
      const int byte = fp8_column(column);
      ASSERT_EQ(e4m3_bytes(laid.of[byte / 4]) >> (8 * (byte % 4)) & 0xFFU,
                (column < 4 ? low : high) >> (8 * (column % 4)) & 0xFFU)
          << "column " << column << ", codes " << low << " and " << high;
    }
  }
}

TEST(CodeWords, PaddingStaysZero) {
  EXPECT_EQ(lay_e2m1(0), 0U);
  EXPECT_EQ(lay_e4m3(0, 0).of[0], 0U);
  EXPECT_EQ(lay_e4m3(0, 0).of[1], 0U);
}

}  // namespace
}  // namespace nibble::cuda
