// Products of 4-bit codes in whole models, emulated, against the reference, and against the
// products in BF16 of the same rounded inputs; and rows that have the same bits however they run.
// Needs a card. Pebble: quantize/recipe/declared_cuda_test.cc; kernels alone:
// checks/quantized_check.cu.
#include <gtest/gtest.h>

#include "backend/cuda/cuda_backend.h"
#include "backend/reference/reference_backend.h"
#include "testing/golden_checks.h"

namespace nibble {
namespace {

using Logits = std::vector<float>;
class CudaFp4 : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
  }
  /// Logits of the first sequence of the golden, `piece` rows at a time.
  static Logits run(const Golden& golden, const BackendFactory& make, size_t piece,
                    Arithmetic arithmetic, const CardLimit& card = {}) {
    const auto backend =
        make(golden.weights, golden.config, {.activations = Activations::declared, .card = card})
            .value();
    TestSession session(*backend, golden.config, {.sequences = 1});
    return logits_in_pieces(session, golden.sequences.front(), piece, {.arithmetic = arithmetic});
  }
};

/// The bar is that of CudaQuantized.DeclaredActivationsNearTheReference: codes that turn by a step
/// are many in random models, and a wrong scale is far outside.
TEST_P(CudaFp4, NearTheReference) {
  const Golden golden = load_golden(GetParam());
  const size_t whole = golden.sequences.front().ids.size();
  for (const Arithmetic arithmetic : {Arithmetic::generation, Arithmetic::prompt}) {
    const Logits expected = run(golden, make_bf16_prompt_reference_backend, whole, arithmetic);
    const double widened =
        relative_error(run(golden, make_cuda_backend, whole, arithmetic), expected);
    const double error =
        relative_error(run(golden, make_fp4_emulating_backend, whole, arithmetic), expected);
    std::fprintf(stderr, "%s: relative error %.2e of products of codes, %.2e in BF16\n",
                 GetParam().c_str(), error, widened);
    EXPECT_LE(error, 1.5 * widened + 0.02);
    // --card-limit rtx5090 --emulate-fp4
    const CardLimit small{.shared_bytes = 101376, .portable_kernels = true};
    EXPECT_LE(
        relative_error(run(golden, make_fp4_emulating_backend, whole, arithmetic, small), expected),
        1.5 * widened + 0.02);
  }
}

TEST_P(CudaFp4, SameBitsInPieces) {
  const Golden golden = load_golden(GetParam());
  const size_t whole = golden.sequences.front().ids.size();
  const Logits expected = run(golden, make_fp4_emulating_backend, whole, Arithmetic::generation);
  for (const size_t piece : {size_t{1}, size_t{5}})
    EXPECT_EQ(run(golden, make_fp4_emulating_backend, piece, Arithmetic::generation), expected)
        << piece;
}

INSTANTIATE_TEST_SUITE_P(Models, CudaFp4, testing::ValuesIn(quantized_golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

TEST(CudaFp4Refusals, OtherActivations) {
  if (const auto device = describe_cuda_device(); !device.ok())
    GTEST_SKIP() << device.error().message;
  const Golden golden = load_golden(quantized_golden_names().front());
  const auto backend =
      make_fp4_emulating_backend(golden.weights, golden.config, {.activations = Activations::bf16});
  ASSERT_FALSE(backend.ok());
  EXPECT_EQ(backend.error().message,
            "emulated products of 4-bit codes: expected --activations declared, found bf16");
}

}  // namespace
}  // namespace nibble
