// Products of rows as files have them give the bits of interleaved ones: every format, number of
// rows and instruction set, wherever in a file the rows begin.
#include <gtest/gtest.h>

#include <cstring>

#include "backend/cpu/isa.h"
#include "backend/cpu/linear_cases.h"

namespace nibble::cpu {
namespace {

struct Stored {
  WeightFormat format;
  DType plain;
  int64_t columns;  // the least that are a whole piece
};
constexpr Stored kStored[] = {
    {WeightFormat::nvfp4, DType::u8, 256},       {WeightFormat::fp8_tensor, DType::u8, 128},
    {WeightFormat::fp8_channel, DType::u8, 128}, {WeightFormat::fp8_block, DType::u8, 128},
    {WeightFormat::plain, DType::bf16, 64},      {WeightFormat::plain, DType::f32, 32}};

class StoredLinear : public testing::TestWithParam<Activations> {};

TEST_P(StoredLinear, HasTheBitsOfPanels) {
  RandomWeights random(11);
  constexpr int64_t kRowsMost = 70;
  for (const Stored& c : kStored)
    for (const auto& [rows, pieces] : {std::pair{16, 1}, {48, 3}, {144, 2}, {272, 9}}) {
      const int64_t cols = c.columns * pieces;
      const LinearWeight weight = random.linear(rows, cols, c.format, c.plain);
      const PackedLinear panels = PackedLinear::pack(weight).value();
      const PackedLinear stored = PackedLinear::over(weight).value();
      EXPECT_EQ(stored.bytes(), panels.bytes());
      const Inputs inputs = random_inputs(random, kRowsMost, cols);
      for (const KernelTable* kernels : usable_kernels())
        for (const int64_t x_rows : {1, 2, 3, 4, 5, 17, 70}) {
          const std::vector<float> expected =
              multiply({*kernels, 1, GetParam()}, panels, inputs, x_rows);
          ASSERT_TRUE(
              same_bits(multiply({*kernels, 2, GetParam()}, stored, inputs, x_rows), expected))
              << kernels->isa << " format " << static_cast<int>(c.format) << " [" << rows << ", "
              << cols << "] x " << x_rows << " rows";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Activations, StoredLinear,
                         testing::Values(Activations::f32, Activations::int8),
                         [](const auto& mode) {
                           return std::string(activations_name(mode.param));
                         });

TEST(StoredRows, MayBeginAnywhere) {
  RandomWeights random(12);
  const LinearWeight weight = random.linear(32, 512, WeightFormat::nvfp4);
  const PackedLinear panels = PackedLinear::pack(weight).value();
  const Inputs inputs = random_inputs(random, 7, 512);
  const auto bytes = static_cast<size_t>(weight.values.bytes());
  const auto scale_bytes = static_cast<size_t>(weight.scales.bytes());
  std::vector<std::byte> file(bytes + scale_bytes + 128);
  for (const size_t begin : {0, 1, 8, 60}) {
    std::byte* values = file.data() + begin;
    std::byte* scales = values + bytes + 3;
    std::memcpy(values, weight.values.view().data, bytes);
    std::memcpy(scales, weight.scales.view().data, scale_bytes);
    LinearSource source;
    source.rows = 32;
    source.cols = 512;
    source.scheme = weight.scheme;
    PackedLinear stored(source, DType::u8);
    ASSERT_TRUE(stored.reads_stored_rows());
    WeightArena arena = WeightArena::reserve(stored.room() - stored.stored_bytes()).value();
    stored.place_stored(values, scales, arena);
    ASSERT_TRUE(stored.set_factors(weight).ok());
    for (const KernelTable* kernels : usable_kernels())
      for (const int64_t rows : {1, 3, 7})
        ASSERT_TRUE(same_bits(multiply({*kernels, 1, Activations::int8}, stored, inputs, rows),
                              multiply({*kernels, 1, Activations::int8}, panels, inputs, rows)))
            << kernels->isa << " from byte " << begin;
  }
}

TEST(StoredRows, UnpackAsPanelsDo) {
  RandomWeights random(13);
  for (const Stored& c : kStored) {
    const LinearWeight weight = random.linear(32, c.columns * 3, c.format, c.plain);
    const PackedLinear panels = PackedLinear::pack(weight).value();
    const PackedLinear stored = PackedLinear::over(weight).value();
    std::vector<float> expected(static_cast<size_t>(c.columns * 3));
    std::vector<float> row(expected.size());
    for (const KernelTable* kernels : usable_kernels())
      for (const int64_t n : {0, 17, 31}) {
        kernels->unpack_row(panels.view(), n, expected.data());
        kernels->unpack_row(stored.view(), n, row.data());
        ASSERT_TRUE(same_bits(row, expected)) << kernels->isa << " row " << n;
      }
  }
}

/// Padding, odd pieces and types that are widened are not read where they lie.
TEST(StoredRows, OthersAreCopied) {
  const auto reads = [](int64_t rows, int64_t cols, WeightFormat format, DType stored) {
    LinearSource source;
    source.rows = rows;
    source.cols = cols;
    source.scheme.weights = format;
    return PackedLinear(source, stored).reads_stored_rows();
  };
  EXPECT_TRUE(reads(16, 256, WeightFormat::nvfp4, DType::u8));
  EXPECT_FALSE(reads(24, 256, WeightFormat::nvfp4, DType::u8));
  EXPECT_FALSE(reads(16, 384, WeightFormat::nvfp4, DType::u8));
  EXPECT_TRUE(reads(16, 64, WeightFormat::plain, DType::bf16));
  EXPECT_FALSE(reads(16, 48, WeightFormat::plain, DType::bf16));
  EXPECT_FALSE(reads(16, 64, WeightFormat::plain, DType::f16));
  EXPECT_TRUE(reads(16, 64, WeightFormat::plain, DType::f32));
}

}  // namespace
}  // namespace nibble::cpu
