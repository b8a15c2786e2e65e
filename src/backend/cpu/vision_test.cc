// The vision tower of the CPU backend against transformers, and its bits on every instruction set
// and number of threads.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/reference/reference_backend.h"
#include "testing/vision_checks.h"

namespace nibble {
namespace {

class CpuVision : public testing::TestWithParam<const char*> {
 protected:
  VisionChecks checks_{
      GetParam(), make_cpu_backend, {.activations = Activations::f32, .threads = 2}, 3e-5};
};

TEST_P(CpuVision, RowsOfTheTower) {
  checks_.expect_rows();
  checks_.report();
}
TEST_P(CpuVision, LogitsWithMedia) {
  for (const int piece : {0, 64}) checks_.expect_logits(piece);
  if (std::string(GetParam()) == "tiny") checks_.expect_logits(7);
  checks_.report();
}
TEST_P(CpuVision, SameBitsInEveryCutOnEveryInstructionSet) {
  std::vector<BackendOptions> others;
  for (const cpu::KernelTable* kernels : cpu::usable_kernels())
    others.push_back({.activations = Activations::int8, .threads = 3, .isa = kernels->isa});
  checks_.expect_same_bits(make_cpu_backend, others);
}
TEST_P(CpuVision, NumbersThatAreNotFiniteAreSeen) { checks_.expect_not_finite_rows_to_be_seen(); }
TEST_P(CpuVision, RowsComeBackFromHostMemory) { checks_.expect_rows_to_come_back_from_host(); }

INSTANTIATE_TEST_SUITE_P(Models, CpuVision, testing::Values("tiny", "pebble"),
                         [](const auto& test) { return std::string(test.param); });

/// Entries of the layer that drafts are made of media rows too.
TEST(CpuVisionDrafts, AreThoseOfTheReference) {
  VisionChecks checks("pebble", make_cpu_backend, {.activations = Activations::f32, .threads = 2},
                      1e-3, VisionChecks::Drafting::on);
  checks.expect_drafts_like(make_reference_backend);
  checks.report();
}

TEST(CpuVisionBf16, StaysNear) {
  VisionChecks checks("pebble", make_cpu_backend, {.activations = Activations::bf16}, 2e-2);
  checks.expect_rows();
  checks.report();
}

/// With the inputs of all linears rounded to BF16, in the tower and in the text model, logits
/// differ by 3.2e-2 where rows differ by 2.4e-3.
TEST(CpuVisionBf16, LogitsStayNear) {
  VisionChecks checks("pebble", make_cpu_backend, {.activations = Activations::bf16}, 4e-2);
  checks.expect_logits(0);
  checks.report();
}

}  // namespace
}  // namespace nibble
