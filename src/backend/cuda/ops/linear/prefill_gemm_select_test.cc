// The choice of kernels of prompt products, without a card.
#include "backend/cuda/ops/linear/prefill_gemm_select.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/ops/linear/linear_select.h"
#include "backend/cuda/testing/plan_tables.h"

namespace nibble::cuda {

std::string prompt_gemm_lines() {
  std::string out;
  for (const Format format : {Format::bf16, Format::fp8, Format::nvfp4})
    for (const FactorLayout layout : {FactorLayout::scalar, FactorLayout::block128})
      for (const GemmOutput output : {GemmOutput::bf16, GemmOutput::swiglu}) {
        if (layout == FactorLayout::block128 && format != Format::fp8) continue;
        PrefillGemm gemm{.weight = {.format = format, .layout = layout, .rows = 4096, .cols = 2048},
                         .output = output};
        out += concat("prompt product in ", format_name(format),
                      layout == FactorLayout::block128 ? " with block factors" : "", ", output ",
                      static_cast<int>(output), "\n");
        out += lines_of(kPromptRows, [&](int rows, const Architecture& card) {
          gemm.rows = rows;
          return select_prefill_gemm(gemm, card).text();
        });
      }
  return out;
}

namespace {

TEST(PrefillGemmSelectTest, FitsItsCards) {
  for (const Card& card : cards())
    for (const Format format : {Format::bf16, Format::fp8, Format::nvfp4}) {
      const PrefillGemm gemm{.rows = 100, .weight = {.format = format, .rows = 512, .cols = 512}};
      const PrefillGemmPlan plan = select_prefill_gemm(gemm, card.facts);
      EXPECT_LE(plan.shared_bytes, card.facts.shared_bytes) << plan.text();
      EXPECT_EQ(plan.blocks, 2);
    }
}

TEST(PrefillGemmSelectTest, PortableKernelsAreChosenWhereTheyAreForced) {
  EXPECT_EQ(select_prefill_gemm({.rows = 1, .weight = {.rows = 64, .cols = 64}}, portable_hopper())
                .matrix,
            PrefillGemmPlan::Matrix::mma_sync);
}

}  // namespace
}  // namespace nibble::cuda
