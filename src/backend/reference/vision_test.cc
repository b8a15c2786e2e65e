// The vision tower of the reference backend against transformers.
#include <gtest/gtest.h>

#include "backend/reference/reference_backend.h"
#include "testing/vision_checks.h"

namespace nibble {
namespace {

class ReferenceVision : public testing::TestWithParam<const char*> {
 protected:
  VisionChecks checks_{GetParam(), make_reference_backend, {.activations = Activations::f32}, 3e-5};
};

TEST_P(ReferenceVision, RowsOfTheTower) {
  checks_.expect_rows();
  checks_.report();
}
TEST_P(ReferenceVision, LogitsWithMedia) {
  checks_.expect_logits(0);
  if (std::string(GetParam()) == "tiny") checks_.expect_logits(64);
  checks_.report();
}
TEST_P(ReferenceVision, SameBitsInEveryCut) {
  checks_.expect_same_bits(make_reference_backend, {});
}
TEST_P(ReferenceVision, NumbersThatAreNotFiniteAreSeen) {
  checks_.expect_not_finite_rows_to_be_seen();
}

TEST_P(ReferenceVision, RowsComeBackFromHostMemory) {
  checks_.expect_rows_to_come_back_from_host();
}

INSTANTIATE_TEST_SUITE_P(Models, ReferenceVision, testing::Values("tiny", "pebble"),
                         [](const auto& test) { return std::string(test.param); });

/// Inputs of linears in BF16, as on a card.
TEST(ReferenceVisionBf16, StaysNear) {
  VisionChecks checks("pebble", make_reference_backend, {.activations = Activations::bf16}, 2e-2);
  checks.expect_rows();
  checks.report();
}

}  // namespace
}  // namespace nibble
