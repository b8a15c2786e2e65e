// The rule of `--activations auto` on a card, as a table of all facts.
#include "backend/cuda/activations/activation_rule.h"

#include <gtest/gtest.h>

#include "base/concat.h"
#include "testing/golden.h"

namespace nibble::cuda {
namespace {

struct Case {
  ActivationFacts facts;
  Activations mode;
  std::string_view words;  // in the reason; empty: there is none
};

TEST(ActivationRule, Table) {
  constexpr auto kNone = Fp4Proof::none;
  constexpr auto kEqual = Fp4Proof::equal;
  constexpr auto kDifferent = Fp4Proof::different;
  const Case cases[] = {
      // Without the instruction nothing is chosen, whatever the file declares.
      {{false, kNone, 0, true}, Activations::bf16, ""},
      {{false, kNone, 100, true}, Activations::bf16, ""},
      {{false, kEqual, 100, true}, Activations::bf16, ""},
      // A file that declares nothing in 4 bits: w4a16, mixed, experts-only, fp8.
      {{true, kEqual, 0, true}, Activations::bf16, ""},
      {{true, kNone, 0, true}, Activations::bf16, ""},
      // One that declares them: w4a4, w4a4-fp8-head.
      {{true, kNone, 100, true}, Activations::bf16, "were not yet proved"},
      {{true, kDifferent, 100, true}, Activations::bf16, "are not those"},
      {{true, kEqual, 100, true}, Activations::declared, "100 linears declare 4-bit inputs"},
      {{true, kEqual, 100, false}, Activations::bf16, "share an input"},
      {{true, kNone, 100, false}, Activations::bf16, "share an input"},
  };
  for (const Case& row : cases) {
    const ActivationChoice choice = choose_activations(row.facts);
    EXPECT_EQ(choice.mode, row.mode) << choice.reason;
    EXPECT_EQ(choice.reason.empty(), row.words.empty()) << choice.reason;
    EXPECT_NE(choice.reason.find(row.words), std::string::npos) << choice.reason;
  }
}

/// Only 4-bit codes that are proved are taken without being asked for.
TEST(ActivationRule, NothingElseTakesDeclaredOnes) {
  for (const bool instruction : {false, true})
    for (const Fp4Proof proof : {Fp4Proof::none, Fp4Proof::equal, Fp4Proof::different})
      for (const int64_t declared : {0, 1, 1000})
        for (const bool computable : {false, true}) {
          const bool all = instruction && proof == Fp4Proof::equal && declared > 0 && computable;
          const auto choice = choose_activations({.has_instruction = instruction,
                                                  .proof = proof,
                                                  .declared = declared,
                                                  .computable = computable});
          EXPECT_EQ(choice.mode, all ? Activations::declared : Activations::bf16);
        }
}

/// As many as the files have input scales of such linears.
TEST(ActivationRule, LinearsOfFiles) {
  const auto count = [](const char* name) {
    return linears_in_fp4(load_golden(concat("model-quantized/", name)).weights);
  };
  EXPECT_EQ(count("nvfp4-w4a4"), 67);
  EXPECT_EQ(count("modelopt-nvfp4"), 67);
  EXPECT_EQ(count("fp8-mixed"), 1);
  EXPECT_EQ(count("nvfp4-w4a16"), 0);
  EXPECT_EQ(count("qwen-fp8"), 0);
  const auto count_fp8 = [](const char* name) {
    return linears_in_fp8(load_golden(concat("model-quantized/", name)).weights);
  };
  EXPECT_EQ(count_fp8("qwen-fp8"), 13);
  EXPECT_EQ(count_fp8("fp8-mixed"), 13);
  EXPECT_EQ(count_fp8("nvfp4-w4a4"), 0);
  EXPECT_EQ(count_fp8("nvfp4-w4a16"), 0);
}

}  // namespace
}  // namespace nibble::cuda
