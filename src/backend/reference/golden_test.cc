// The reference backend against transformers, on every golden model.
#include <gtest/gtest.h>

#include "backend/reference/reference_backend.h"
#include "testing/cache_checks.h"
#include "testing/draft_checks.h"
#include "testing/golden_checks.h"

namespace nibble {
namespace {

class ReferenceGolden : public testing::TestWithParam<std::string> {
 protected:
  /// The bar is tighter than the house's: only F32 rounding on the other side may show.
  GoldenChecks checks_{GetParam(), make_reference_backend, {.activations = Activations::f32}, 3e-5};
};

TEST_P(ReferenceGolden, PrefillInOnePiece) {
  checks_.expect_prefill(0);
  checks_.report();
}
TEST_P(ReferenceGolden, PrefillInPieces) {
  for (const int piece : {1, 7, 64}) checks_.expect_prefill(piece);
}
TEST_P(ReferenceGolden, MixedBatch) { checks_.expect_mixed_batch(); }
TEST_P(ReferenceGolden, SameBitsInEveryPiece) { checks_.expect_same_bits(); }
TEST_P(ReferenceGolden, Snapshots) { checks_.expect_snapshots(); }
TEST_P(ReferenceGolden, Drafts) { checks_.expect_drafts(); }
TEST_P(ReferenceGolden, DraftsOnAStateInBf16) {
  GoldenChecks checks(GetParam(), make_reference_backend, {.state = StateCache::bf16}, 0.2);
  checks.expect_drafts();
}
TEST_P(ReferenceGolden, KeysAndValuesOfFewBits) {
  for (const KvCache kind : {KvCache::fp8, KvCache::turboquant_4bit_nc, KvCache::nvfp4}) {
    if (!has_kv_golden(GetParam(), kind)) continue;
    GoldenChecks checks(GetParam(), make_reference_backend,
                        {.activations = Activations::f32, .kv_cache = kind});
    checks.expect_prefill_with_kv(kind, 0);
    checks.report();
  }
}
TEST_P(ReferenceGolden, OneCallMovesManyPagesAndStates) { expect_cache_moves(checks_.backend()); }
TEST_P(ReferenceGolden, Greedy) { checks_.expect_greedy(); }

INSTANTIATE_TEST_SUITE_P(Models, ReferenceGolden, testing::ValuesIn(golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

class ReferenceMtp : public testing::TestWithParam<std::string> {
 protected:
  DraftChecks checks_{GetParam(), make_reference_backend, {.activations = Activations::f32}, 3e-5};
};

TEST_P(ReferenceMtp, DraftsWhatPyTorchDrafts) {
  for (const int piece : {0, 7}) checks_.expect_golden(piece);
  checks_.report();
}
TEST_P(ReferenceMtp, SameBitsHoweverTheTokensCame) { checks_.expect_same_bits(); }
TEST_P(ReferenceMtp, LeavesTheModelAlone) { checks_.expect_the_model_unchanged(); }
TEST_P(ReferenceMtp, RowsThatAreNotFiniteEndDraftsOnly) {
  checks_.expect_not_finite_rows_to_end_drafts_only();
}

INSTANTIATE_TEST_SUITE_P(Models, ReferenceMtp, testing::ValuesIn(mtp_golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

class ReferenceQuantized : public testing::TestWithParam<std::string> {};

TEST_P(ReferenceQuantized, DeclaredActivations) {
  GoldenChecks checks(GetParam(), make_reference_backend, {.activations = Activations::declared});
  checks.expect_divergence(GoldenChecks::Distributions::declared);
}

TEST_P(ReferenceQuantized, PlainActivations) {
  GoldenChecks checks(GetParam(), make_reference_backend, {.activations = Activations::f32});
  checks.expect_divergence(GoldenChecks::Distributions::weights_only);
}

INSTANTIATE_TEST_SUITE_P(Models, ReferenceQuantized, testing::ValuesIn(quantized_golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

}  // namespace
}  // namespace nibble
