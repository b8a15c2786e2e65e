// Drafts of the CPU backend: those of PyTorch, the same bits in every batch, chunk, thread count
// and instruction set, and those of the reference with keys and values in few bits.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels.h"
#include "backend/reference/reference_backend.h"
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

TEST(CpuMtpOnPebble, AcceptsAsManyDraftsAsPyTorch) {
  expect_acceptance_of_pebble(make_cpu_backend, {.threads = 2}, {.places_share = 0.01});
}

INSTANTIATE_TEST_SUITE_P(Models, CpuMtp, testing::ValuesIn(mtp_golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

}  // namespace
}  // namespace nibble
