// Drafts of the CUDA backend: the same bits however the tokens before came, and those of PyTorch as
// closely as BF16 inputs allow. Needs a card.
#include <gtest/gtest.h>

#include <optional>

#include "backend/cuda/cuda_backend.h"
#include "backend/reference/reference_backend.h"
#include "testing/draft_acceptance.h"
#include "testing/draft_checks.h"
#include "testing/golden_checks.h"

namespace nibble {
namespace {

/// Inputs of linears are rounded to BF16, three times in a row before the last draft of a golden.
constexpr double kErrorMax = 4e-2;

class CudaMtp : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
    checks_.emplace(GetParam(), make_cuda_backend, BackendOptions{}, kErrorMax);
  }
  std::optional<DraftChecks> checks_;
};

TEST_P(CudaMtp, DraftsWhatPyTorchDrafts) {
  for (const int piece : {0, 64}) checks_->expect_golden(piece);
  checks_->report();
}
TEST_P(CudaMtp, SameBitsHoweverTheTokensCame) { checks_->expect_same_bits(); }
TEST_P(CudaMtp, LeavesTheModelAlone) { checks_->expect_the_model_unchanged(); }
TEST_P(CudaMtp, RowsThatAreNotFiniteEndDraftsOnly) {
  checks_->expect_not_finite_rows_to_end_drafts_only();
}

/// The reference with the same rounded weights.
TEST_P(CudaMtp, AlsoInFewerBitsAndWithFewerTokens) {
  const DraftVariant variants[] = {
      {.format = WeightFormat::fp8_tensor, .tokens = {}},
      {.format = WeightFormat::plain, .tokens = {0, 3, 4, 17, 40, 41, 42, 90}},
      {.format = WeightFormat::fp8_tensor, .tokens = {1, 2, 50, 51, 77}}};
  for (const DraftVariant& variant : variants) {
    SCOPED_TRACE(variant.tokens.size());
    DraftChecks cuda(GetParam(), make_cuda_backend, {}, kErrorMax, variant);
    DraftChecks reference(GetParam(), make_reference_backend, {}, kErrorMax, variant);
    cuda.expect_those_of(reference);
    cuda.expect_same_bits();
    cuda.expect_the_model_unchanged();
  }
}

TEST(CudaMtpOnPebble, AcceptsAsManyDraftsAsPyTorch) {
  if (const auto device = describe_cuda_device(); !device.ok())
    GTEST_SKIP() << device.error().message;
  expect_acceptance_of_pebble(make_cuda_backend, {}, {.places_share = 0.05, .rounds_share = 0.05});
}

TEST(CudaMtpOnPebble, In4BitsAsTheReferenceAndNearlyAsManyRight) {
  if (const auto device = describe_cuda_device(); !device.ok())
    GTEST_SKIP() << device.error().message;
  expect_drafts_of_the_reference(make_cuda_backend, make_reference_backend, {}, kErrorMax);
  expect_acceptance_of_pebble(
      make_cuda_backend, {},
      {.places_share = 0.05, .rounds_share = 0.6, .variant = {.format = WeightFormat::nvfp4}});
}

INSTANTIATE_TEST_SUITE_P(Models, CudaMtp, testing::ValuesIn(mtp_golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

}  // namespace
}  // namespace nibble
