// Checks which linears are multiplied as 4-bit codes, on which cards and with which tile. No card
// takes part.
#include "backend/cuda/ops/quantized/quantized_select.h"

#include <gtest/gtest.h>

#include <iterator>

#include "backend/cuda/ops/linear/prefill_gemm.h"

namespace nibble::cuda {
namespace {

using Fp4 = Architecture::Fp4;
using Reach = CodeTarget::Reach;

Architecture card_of(int major, int minor, Reach reach, Fp4 fp4) {
  return {.code = {.major = major, .minor = minor, .reach = reach},
          .multiprocessors = 170,
          .shared_bytes = kQuantizedSharedMost,
          .fp4 = fp4};
}
const Architecture kCard = card_of(12, 0, Reach::family, Fp4::machine);

DeviceLinear linear_of(Format format, ActivationFormat activations, int rows = 2048,
                       int cols = 2048) {
  return {.format = format, .activations = activations, .rows = rows, .cols = cols};
}

TEST(QuantizedSelect, TheInstructionIsInCodeForComputeCapability12Alone) {
  EXPECT_TRUE(card_of(12, 0, Reach::family, Fp4::off).has_fp4_mma());
  EXPECT_TRUE(card_of(12, 1, Reach::exact, Fp4::off).has_fp4_mma());
  EXPECT_FALSE(card_of(12, 0, Reach::portable, Fp4::off).has_fp4_mma());
  EXPECT_FALSE(card_of(10, 0, Reach::family, Fp4::off).has_fp4_mma());
  EXPECT_FALSE(card_of(9, 0, Reach::exact, Fp4::off).has_fp4_mma());
  EXPECT_FALSE(card_of(8, 0, Reach::portable, Fp4::off).has_fp4_mma());
  Architecture portable = card_of(12, 0, Reach::family, Fp4::off);
  portable.kernels = Architecture::Kernels::portable;
  EXPECT_FALSE(portable.has_fp4_mma());
}

TEST(QuantizedSelect, TensorMemoryIsInCodeForFamilyAndExactTargetsOfComputeCapability10) {
  EXPECT_TRUE(card_of(10, 0, Reach::family, Fp4::off).has_tensor_memory());
  EXPECT_TRUE(card_of(10, 3, Reach::exact, Fp4::off).has_tensor_memory());
  EXPECT_FALSE(card_of(10, 0, Reach::portable, Fp4::off).has_tensor_memory());
  EXPECT_FALSE(card_of(12, 0, Reach::family, Fp4::off).has_tensor_memory());
  EXPECT_FALSE(card_of(9, 0, Reach::exact, Fp4::off).has_tensor_memory());
  Architecture portable = card_of(10, 0, Reach::family, Fp4::machine);
  EXPECT_TRUE(portable.uses_tensor_memory());
  portable.kernels = Architecture::Kernels::portable;
  EXPECT_FALSE(portable.has_tensor_memory() || portable.uses_tensor_memory());
  EXPECT_FALSE(card_of(10, 0, Reach::family, Fp4::off).uses_tensor_memory());
  EXPECT_FALSE(card_of(10, 0, Reach::family, Fp4::software).uses_tensor_memory());
  EXPECT_FALSE(kCard.uses_tensor_memory());
}

/// A matrix is read in its own order alone, so that no kernel meets codes of the other.
TEST(QuantizedSelect, TensorMemoryTakesMatricesInBlocksAndOthersTakeWords) {
  const Architecture cards[] = {card_of(10, 0, Reach::family, Fp4::machine),
                                card_of(10, 0, Reach::family, Fp4::software), kCard,
                                card_of(10, 0, Reach::family, Fp4::off)};
  const bool in_blocks[] = {true, false, false, false};
  const bool in_words[] = {false, true, true, false};
  for (size_t i = 0; i < std::size(cards); ++i) {
    DeviceLinear w = linear_of(Format::nvfp4, ActivationFormat::nvfp4);
    EXPECT_EQ(takes_fp4(w, cards[i]), in_words[i]) << i;
    for (const CodeOrder order : {CodeOrder::blocks, CodeOrder::paired_blocks}) {
      w.order = order;
      EXPECT_EQ(takes_fp4(w, cards[i]), in_blocks[i]) << i;
    }
  }
  EXPECT_FALSE(takes_fp8(linear_of(Format::fp8, ActivationFormat::fp8_token), cards[0]));
  EXPECT_TRUE(takes_fp8(linear_of(Format::fp8, ActivationFormat::fp8_token), cards[1]));
}

TEST(QuantizedSelect, BlocksAreForWholeBlocksOfRowsOfCodesOnBothSides) {
  const auto loaded = [](Format format, ActivationFormat inputs, int rows) {
    static constexpr uint8_t kValues = 0;
    DeviceLinear w = linear_of(format, inputs, rows);
    w.values = &kValues;
    return w;
  };
  const DeviceLinear fits = loaded(Format::nvfp4, ActivationFormat::nvfp4, 384);
  EXPECT_TRUE(fits_blocks(fits));
  EXPECT_FALSE(fits_blocks(DeviceLinear()));
  EXPECT_FALSE(fits_blocks(loaded(Format::nvfp4, ActivationFormat::nvfp4, 320)));
  EXPECT_FALSE(fits_blocks(loaded(Format::nvfp4, ActivationFormat::high, 384)));
  EXPECT_FALSE(fits_blocks(loaded(Format::fp8, ActivationFormat::fp8_token, 384)));
  DeviceLinear done = fits;
  done.order = CodeOrder::blocks;
  EXPECT_FALSE(fits_blocks(done)) << "it is in blocks already";
  const DeviceLinear high = loaded(Format::nvfp4, ActivationFormat::high, 384);
  EXPECT_TRUE(fits_blocks(fits, fits, fits));
  EXPECT_FALSE(fits_blocks(high, fits, fits));
  EXPECT_FALSE(fits_blocks(fits, high, fits));
  EXPECT_FALSE(fits_blocks(fits, fits, high));
}

TEST(QuantizedSelect, TilesOfTensorMemory) {
  DeviceLinear w = linear_of(Format::nvfp4, ActivationFormat::nvfp4);
  w.order = CodeOrder::blocks;
  const Architecture card = card_of(10, 0, Reach::family, Fp4::machine);
  const auto text = [&](int rows, QuantizedOutput output) {
    return select_quantized({.rows = rows, .weight = w, .output = output}, 1, card).text();
  };
  EXPECT_EQ(text(1, QuantizedOutput::f32),
            "fp4 nvfp4 x nvfp4 to f32 by tensor memory, tiles of 128 x 64");
  EXPECT_EQ(text(64, QuantizedOutput::swiglu),
            "fp4 nvfp4 x nvfp4 to swiglu by tensor memory, tiles of 128 x 64");
  EXPECT_EQ(text(65, QuantizedOutput::bf16),
            "fp4 nvfp4 x nvfp4 to bf16 by tensor memory, tiles of 128 x 256");
}

TEST(QuantizedSelect, TilesOfExpertsByTensorMemory) {
  DeviceLinear w = linear_of(Format::nvfp4, ActivationFormat::nvfp4, 512);
  w.order = CodeOrder::paired_blocks;
  const int32_t list[3] = {};
  const auto text = [&](int rows, int64_t experts, Fp4 way) {
    QuantizedGemm gemm{.rows = rows, .weight = w, .output = QuantizedOutput::swiglu};
    gemm.experts.list = list;
    return select_quantized(gemm, experts, card_of(10, 3, Reach::exact, way)).text();
  };
  EXPECT_EQ(text(64 * 256, 256, Fp4::machine),
            "fp4 nvfp4 x nvfp4 to swiglu by tensor memory, tiles of 128 x 64");
  EXPECT_EQ(text(65 * 256, 256, Fp4::machine),
            "fp4 nvfp4 x nvfp4 to swiglu by tensor memory, tiles of 128 x 128");
  EXPECT_EQ(text(8, 8, Fp4::blocks),
            "fp4 emulated nvfp4 x nvfp4 to swiglu by tensor memory, tiles of 128 x 64");
}

TEST(QuantizedSelect, CodesOnBothSidesUnderTheFilesScaleOrNothing) {
  const DeviceLinear both = linear_of(Format::nvfp4, ActivationFormat::nvfp4);
  EXPECT_TRUE(takes_fp4(both, kCard));
  EXPECT_TRUE(takes_fp4(both, card_of(9, 0, Reach::exact, Fp4::software)));
  EXPECT_FALSE(takes_fp4(both, card_of(12, 0, Reach::family, Fp4::off)));
  EXPECT_FALSE(takes_fp4(linear_of(Format::nvfp4, ActivationFormat::high), kCard));
  EXPECT_FALSE(takes_fp4(linear_of(Format::nvfp4, ActivationFormat::fp8_token), kCard));
  EXPECT_FALSE(takes_fp4(linear_of(Format::fp8, ActivationFormat::fp8_token), kCard));
  EXPECT_FALSE(takes_fp4(linear_of(Format::bf16, ActivationFormat::high), kCard));
}

TEST(QuantizedSelect, Fp8OnBothSidesWhereACardMultipliesCodes) {
  for (const ActivationFormat inputs :
       {ActivationFormat::fp8_token, ActivationFormat::fp8_tensor, ActivationFormat::fp8_group}) {
    const DeviceLinear both = linear_of(Format::fp8, inputs);
    EXPECT_TRUE(takes_fp8(both, kCard));
    EXPECT_TRUE(takes_fp8(both, card_of(9, 0, Reach::exact, Fp4::software)));
    EXPECT_FALSE(
        takes_fp8(both, card_of(9, 0, Reach::exact, Fp4::off)));  // wgmma in BF16 is faster
    EXPECT_FALSE(takes_fp8(both, card_of(12, 0, Reach::family, Fp4::off)));
    EXPECT_FALSE(takes_fp8(both, card_of(8, 0, Reach::portable, Fp4::software)));
    EXPECT_FALSE(takes_fp8(linear_of(Format::nvfp4, inputs), kCard));
    EXPECT_FALSE(takes_fp8(linear_of(Format::fp8, inputs, 2048, 2048 + 64), kCard));
  }
  EXPECT_FALSE(takes_fp8(linear_of(Format::fp8, ActivationFormat::high), kCard));
  EXPECT_FALSE(takes_fp8(linear_of(Format::fp8, ActivationFormat::nvfp4), kCard));
  EXPECT_FALSE(takes_fp8(linear_of(Format::nvfp4, ActivationFormat::nvfp4), kCard));
}

TEST(QuantizedSelect, StagesOfFp8HaveNoScales) {
  const DeviceLinear w = linear_of(Format::fp8, ActivationFormat::fp8_token);
  const QuantizedPlan plan =
      select_quantized({.rows = 8192, .weight = w, .output = QuantizedOutput::bf16}, 1, kCard);
  EXPECT_EQ(plan.shared_bytes, 5 * 256 * 64);
  EXPECT_EQ(plan.text(),
            "fp8 x fp8 to bf16, tiles of 128 x 128, 170 blocks, 5 stages, 81920 bytes shared");
}

TEST(QuantizedSelect, FewRowsHaveNarrowTiles) {
  const DeviceLinear w = linear_of(Format::nvfp4, ActivationFormat::nvfp4, 2048, 2048);
  const auto plan = [&](int rows, QuantizedOutput output) {
    return select_quantized({.rows = rows, .weight = w, .output = output}, 1, kCard);
  };
  EXPECT_EQ(plan(1, QuantizedOutput::f32).tokens, 32);
  EXPECT_EQ(plan(32, QuantizedOutput::f32).tokens, 32);
  EXPECT_EQ(plan(33, QuantizedOutput::f32).tokens, 128);
  EXPECT_EQ(plan(1, QuantizedOutput::f32).blocks, 16);     // as many as tiles
  EXPECT_EQ(plan(1, QuantizedOutput::swiglu).blocks, 32);  // 64 rows of each matrix
  EXPECT_EQ(plan(129, QuantizedOutput::f32).blocks, 32);
  EXPECT_EQ(plan(8192, QuantizedOutput::f32).blocks, 170);  // one for each multiprocessor
  EXPECT_EQ(plan(8192, QuantizedOutput::f32).shared_bytes, 92160);
  EXPECT_EQ(plan(8192, QuantizedOutput::bf16).text(),
            "fp4 nvfp4 x nvfp4 to bf16, tiles of 128 x 128, 170 blocks, 5 stages, 92160 bytes "
            "shared");
}

TEST(QuantizedSelect, ResultsBecomeCodesInMemoryAfterTheStages) {
  const DeviceLinear w = linear_of(Format::nvfp4, ActivationFormat::nvfp4, 512, 2048);
  const auto bytes = [&](int rows) {
    return select_quantized({.rows = rows, .weight = w, .output = QuantizedOutput::swiglu_codes}, 1,
                            kCard)
        .shared_bytes;
  };
  EXPECT_EQ(bytes(8), 46080 + 4 * 32 * 16 * 2);         // four groups of 16 columns
  EXPECT_EQ(bytes(8192), 92160 + 2 * 4 * 32 * 16 * 2);  // of either half of the tokens
}

TEST(QuantizedSelect, ExpertsByTheRowsThatEachIsExpectedToHave) {
  const DeviceLinear w = linear_of(Format::nvfp4, ActivationFormat::nvfp4, 512, 2048);
  const int32_t list[3] = {};
  const auto tokens = [&](int rows, int64_t experts) {
    QuantizedGemm gemm{.rows = rows, .weight = w, .output = QuantizedOutput::swiglu};
    gemm.experts.list = list;
    return select_quantized(gemm, experts, kCard).tokens;
  };
  EXPECT_EQ(tokens(8 * 1024, 256), 32);   // 32 rows an expert
  EXPECT_EQ(tokens(8 * 8192, 256), 128);  // 256
  EXPECT_EQ(tokens(64, 64), 32);
}

}  // namespace
}  // namespace nibble::cuda
