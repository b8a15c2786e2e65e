// Drafts of the CPU backend: those of PyTorch, the same bits in every batch, chunk, thread count
// and instruction set, and those of the reference with keys and values in few bits.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels.h"
#include "backend/reference/reference_backend.h"
#include "testing/draft_acceptance.h"
#include "testing/draft_checks.h"
#include "testing/golden_checks.h"

namespace nibble {
namespace {

class CpuMtp : public testing::TestWithParam<std::string> {
 protected:
  DraftChecks checks_{GetParam(), make_cpu_backend, {.threads = 2}, 3e-5};
};

TEST_P(CpuMtp, DraftsWhatPyTorchDrafts) {
  for (const int piece : {0, 7}) checks_.expect_golden(piece);
  checks_.report();
}
TEST_P(CpuMtp, SameBitsHoweverTheTokensCame) { checks_.expect_same_bits(); }
TEST_P(CpuMtp, LeavesTheModelAlone) { checks_.expect_the_model_unchanged(); }
TEST_P(CpuMtp, RowsThatAreNotFiniteEndDraftsOnly) {
  checks_.expect_not_finite_rows_to_end_drafts_only();
}

TEST_P(CpuMtp, ThreadsAndInstructionSetsGiveTheSameBits) {
  const DraftChecks::ByPlace expected = checks_.drafts(0);
  for (const cpu::KernelTable* table : cpu::usable_kernels())
    for (const int threads : {1, 3}) {
      DraftChecks other(GetParam(), make_cpu_backend, {.threads = threads, .isa = table->isa});
      EXPECT_TRUE(other.drafts(7) == expected) << table->isa << ", threads " << threads;
    }
}

TEST_P(CpuMtp, KeysAndValuesInFewBitsAreThoseOfTheReference) {
  for (const KvCache kv : {KvCache::bf16, KvCache::fp8}) {
    DraftChecks cpu(GetParam(), make_cpu_backend, {.kv_cache = kv, .threads = 2});
    DraftChecks reference(GetParam(), make_reference_backend, {.kv_cache = kv});
    cpu.expect_same_bits();
    const auto found = cpu.drafts(7);
    for (const auto& [place, drafts] : reference.drafts(0))
      EXPECT_LE(relative_error(found.at(place).logits[0], drafts.logits[0]), 5e-3)
          << kv_cache_name(kv) << " after " << place;
  }
}

/// The reference with the same rounded weights; the CPU rounds no inputs here either.
TEST_P(CpuMtp, AlsoInFewerBitsAndWithFewerTokens) {
  const DraftVariant variants[] = {
      {.format = WeightFormat::fp8_tensor, .tokens = {}},
      {.format = WeightFormat::plain, .tokens = {0, 3, 4, 17, 40, 41, 42, 90}},
      {.format = WeightFormat::fp8_tensor, .tokens = {1, 2, 50, 51, 77}}};
  for (const DraftVariant& variant : variants) {
    SCOPED_TRACE(variant.tokens.size());
    const BackendOptions exact{.activations = Activations::f32, .threads = 2};
    DraftChecks cpu(GetParam(), make_cpu_backend, exact, 3e-5, variant);
    DraftChecks reference(GetParam(), make_reference_backend, exact, 3e-5, variant);
    cpu.expect_those_of(reference);
    DraftChecks served(GetParam(), make_cpu_backend, {.threads = 2}, 3e-5, variant);
    served.expect_same_bits();
    served.expect_the_model_unchanged();
  }
}

TEST(CpuMtpOnPebble, AcceptsAsManyDraftsAsPyTorch) {
  expect_acceptance_of_pebble(make_cpu_backend, {.threads = 2}, {.places_share = 0.01});
}

/// In fewer bits other rounds are drafted, and as many drafts are right as PyTorch counts with
/// weights rounded likewise (tools/oracle/mtp_acceptance.py --rounded).
TEST(CpuMtpOnPebble, AcceptsNearlyAsManyIn4Bits) {
  expect_acceptance_of_pebble(make_cpu_backend, {.threads = 2},
                              {.places_share = 0.025,
                               .rounds_share = 0.6,
                               .variant = {.format = WeightFormat::nvfp4},
                               .right = {367, 164, 68}});
}
TEST(CpuMtpOnPebble, AcceptsNearlyAsManyIn8Bits) {
  expect_acceptance_of_pebble(make_cpu_backend, {.threads = 2},
                              {.places_share = 0.01,
                               .rounds_share = 0.3,
                               .variant = {.format = WeightFormat::fp8_tensor},
                               .right = {355, 148, 61}});
}

/// Half of the tokens, by number and the special ones. The counts are this backend's own: no other
/// program trims a head so.
TEST(CpuMtpOnPebble, AcceptsManyWithHalfOfTheTokens) {
  AcceptanceBars bars{.places_share = 0.01, .rounds_share = 0.55, .right = {267, 85, 25}};
  for (int32_t id = 0; id < 960; ++id) bars.variant.tokens.push_back(id);
  for (int32_t id = 1984; id < 2048; ++id) bars.variant.tokens.push_back(id);
  expect_acceptance_of_pebble(make_cpu_backend, {.threads = 2}, bars);
}

TEST(CpuMtpOnPebble, DraftsIn4BitsAsTheReference) {
  expect_drafts_of_the_reference(make_cpu_backend, make_reference_backend,
                                 {.activations = Activations::f32, .threads = 2}, 3e-5);
}

INSTANTIATE_TEST_SUITE_P(Models, CpuMtp, testing::ValuesIn(mtp_golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

}  // namespace
}  // namespace nibble
