// A stored matrix against the source that it is said to be rounded from: what is told of few places
// that differ, and when nothing is said because another program rounded it.
#include "quantize/verify/compare_rounding.h"

#include <gtest/gtest.h>

#include <random>

#include "quantize/rounding/fp8_round.h"
#include "quantize/rounding/nvfp4_round.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

constexpr int64_t kRows = 300, kCols = 32, kBlocks = kRows * kCols / 16;

LinearWeight source_of(DType dtype = DType::f32) {
  LinearWeight source{.module = "a", .rows = kRows, .cols = kCols};
  source.values = Tensor(dtype, Shape{kRows, kCols});
  if (dtype != DType::f32) return source;
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.05F);
  for (int64_t i = 0; i < kRows * kCols; ++i) source.values.as<float>()[i] = normal(random);
  return source;
}

float amax_of(const LinearWeight& source) {
  return largest_magnitude(source.values.view().data, DType::f32, kRows * kCols);
}

LinearWeight nvfp4_of(const LinearWeight& source, RoundAlgorithm algorithm) {
  LinearWeight stored{.module = "a", .rows = kRows, .cols = kCols};
  stored.scheme = {WeightFormat::nvfp4, ActivationFormat::high};
  stored.values = Tensor(DType::u8, Shape{kRows, kCols / 2});
  stored.scales = Tensor(DType::f8_e4m3, Shape{kRows, kCols / 16});
  const int exponent = global_exponent(amax_of(source));
  stored.global_scale = power_of_two_global(exponent, GlobalScale::Direction::divide);
  round_nvfp4_rows(source.values.view(), {.exponent = exponent, .algorithm = algorithm},
                   {stored.values.as<uint8_t>(), static_cast<size_t>(kRows * kCols / 2)},
                   {stored.scales.as<uint8_t>(), static_cast<size_t>(kBlocks)});
  return stored;
}

TEST(CompareRounding, BlocksOfEachAlgorithmAreKnownAndOddOnesCounted) {
  const LinearWeight source = source_of();
  const float amax = amax_of(source);
  for (const auto algorithm :
       {RoundAlgorithm::search, RoundAlgorithm::amax, RoundAlgorithm::four_over_six}) {
    LinearWeight stored = nvfp4_of(source, algorithm);
    EXPECT_EQ(odd_rounding(stored, source, amax), "");
    auto* codes = stored.values.as<uint8_t>();
    auto* scales = stored.scales.as<uint8_t>();
    codes[299 * 16 + 8] ^= 1;  // the second block of the last row, its first code
    const std::string made = concat(", which are not what ", round_algorithm_name(algorithm),
                                    " makes of the source; the first at row ");
    EXPECT_EQ(odd_rounding(stored, source, amax),
              concat("1 of 600 blocks", made, "299, column 16"));
    codes[130 * 16 + 7] ^= 0x10;  // the last code of a block
    scales[131 * 2] ^= 1;
    EXPECT_EQ(odd_rounding(stored, source, amax), concat("3 of 600 blocks", made, "130, column 0"));
    stored.global_scale.value *= 2;
    const float expected =
        power_of_two_global(global_exponent(amax), GlobalScale::Direction::divide).value;
    EXPECT_EQ(odd_rounding(stored, source, amax),
              concat("its global scale: expected ", expected, ", as the blocks have it, found ",
                     2 * expected));
  }
}

/// Up to a tenth of the blocks are damage; more are another program's rounding.
TEST(CompareRounding, AnotherProgramsBlocksAreNotOdd) {
  const LinearWeight source = source_of();
  const float amax = amax_of(source);
  LinearWeight stored = nvfp4_of(source, RoundAlgorithm::search);
  // Whole blocks in rows that lie together, so that most of all rows are as they were.
  for (int64_t block = 20; block < 80; ++block) stored.values.as<uint8_t>()[block * 8] ^= 1;
  EXPECT_NE(odd_rounding(stored, source, amax).find("60 of 600 blocks"), std::string::npos);
  stored.values.as<uint8_t>()[80 * 8] ^= 1;
  EXPECT_EQ(odd_rounding(stored, source, amax), "");
  for (int64_t block = 0; block < kBlocks; ++block) stored.values.as<uint8_t>()[block * 8] ^= 1;
  EXPECT_EQ(odd_rounding(stored, source, amax), "");
}

TEST(CompareRounding, SourcesThatAreNeverRoundedAreNotCompared) {
  const LinearWeight source = source_of();
  LinearWeight stored = nvfp4_of(source, RoundAlgorithm::search);
  stored.values.as<uint8_t>()[0] ^= 1;
  const float amax = amax_of(source);
  EXPECT_NE(odd_rounding(stored, source, amax), "");
  EXPECT_EQ(odd_rounding(stored, source_of(DType::f64), amax), "");
  EXPECT_EQ(odd_rounding(stored, source, 0x1.8p127F), "");
  EXPECT_EQ(odd_rounding(stored, source, std::numeric_limits<float>::quiet_NaN()), "");
}

LinearWeight fp8_of(const LinearWeight& source, WeightFormat format) {
  LinearWeight stored{.module = "a", .rows = kRows, .cols = kCols};
  stored.scheme = {format, ActivationFormat::high};
  stored.values = Tensor(DType::f8_e4m3, Shape{kRows, kCols});
  const std::span<uint8_t> codes(stored.values.as<uint8_t>(), static_cast<size_t>(kRows * kCols));
  if (format == WeightFormat::fp8_tensor) {
    stored.scales = Tensor(DType::f32, Shape{1});
    *stored.scales.as<float>() = fp8_scale(amax_of(source));
    round_fp8_rows(source.values.view(), *stored.scales.as<float>(), codes);
  } else if (format == WeightFormat::fp8_channel) {
    stored.scales = Tensor(DType::f32, Shape{kRows, 1});
    round_fp8_channels(source.values.view(), codes,
                       {stored.scales.as<float>(), static_cast<size_t>(kRows)});
  } else {
    stored.scales = Tensor(DType::f32, Shape{3, 1});
    for (int64_t band = 0; band < 3; ++band) {
      const int64_t rows = std::min<int64_t>(128, kRows - band * 128);
      round_fp8_band(
          rows_of(source.values.view(), band * 128, rows),
          codes.subspan(static_cast<size_t>(band * 128 * kCols), static_cast<size_t>(rows * kCols)),
          {stored.scales.as<float>() + band, 1});
    }
  }
  return stored;
}

TEST(CompareRounding, CodesOfEightBitsAreComparedOneByOne) {
  const LinearWeight source = source_of();
  const float amax = amax_of(source);
  for (const auto format :
       {WeightFormat::fp8_tensor, WeightFormat::fp8_channel, WeightFormat::fp8_block}) {
    LinearWeight stored = fp8_of(source, format);
    EXPECT_EQ(odd_rounding(stored, source, amax), "");
    auto* codes = stored.values.as<uint8_t>();
    codes[299 * kCols + 31] ^= 1;
    EXPECT_EQ(odd_rounding(stored, source, amax),
              "1 of 9600 codes, the first at row 299, column 31");
    // A thousandth of the codes and sixteen more; beyond that another program divided otherwise.
    for (int64_t i = 0; i < 24; ++i) codes[200 * kCols + 5 + i] ^= 1;
    EXPECT_EQ(odd_rounding(stored, source, amax),
              "25 of 9600 codes, the first at row 200, column 5");
    codes[0] ^= 1;
    EXPECT_EQ(odd_rounding(stored, source, amax), "");
  }
}

TEST(CompareRounding, ScalesOfEightBitsAreComparedToo) {
  const LinearWeight source = source_of();
  const float amax = amax_of(source);
  LinearWeight tensor = fp8_of(source, WeightFormat::fp8_tensor);
  *tensor.scales.as<float>() *= 2;
  EXPECT_EQ(odd_rounding(tensor, source, amax),
            concat("its scale: expected ", fp8_scale(amax), ", as the codes have it, found ",
                   2 * fp8_scale(amax)));
  LinearWeight channel = fp8_of(source, WeightFormat::fp8_channel);
  for (int64_t row = 250; row < 280; ++row) channel.scales.as<float>()[row] *= 2;
  EXPECT_EQ(odd_rounding(channel, source, amax), "30 of 300 scales, the first at 250");
  channel.scales.as<float>()[7] *= 2;
  EXPECT_EQ(odd_rounding(channel, source, amax), "");
  LinearWeight block = fp8_of(source, WeightFormat::fp8_block);
  block.scales.as<float>()[2] *= 2;
  EXPECT_EQ(odd_rounding(block, source, amax), "1 of 3 scales, the first at 2");
  block.scales.as<float>()[1] *= 2;
  EXPECT_EQ(odd_rounding(block, source, amax), "");
}

}  // namespace
}  // namespace nibble
