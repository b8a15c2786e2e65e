// Checks which linears are multiplied as 4-bit codes, on which cards and with which tile. No card
// takes part.
#include "backend/cuda/ops/quantized/quantized_select.h"

#include <gtest/gtest.h>

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
