// Drafts of the CPU backend: those of PyTorch, the same bits in every batch, chunk, thread count
// and instruction set, and those of the reference with keys and values in few bits.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels.h"
#include "backend/reference/reference_backend.h"
#include "base/file.h"
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

/// A trained layer, over the model's own text: drafts and shares of right ones by their place in a
/// round are those that mtp_acceptance.py counts.
TEST(CpuMtpOnPebble, AcceptsAsManyDraftsAsPyTorch) {
  const std::filesystem::path root(NIBBLE_SOURCE_DIR);
  const Checkpoint checkpoint = Checkpoint::open(root / "pebble/model").value();
  ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  config.draft_layers = config.mtp_layers;
  const Weights weights = Weights::bind(checkpoint, config).value();
  const auto backend = make_cpu_backend(weights, config, {.threads = 2}).value();
  const std::string path = (root / "tests/golden/mtp_pebble.json").string();
  const Json golden = parse_json(read_text_file(path, 1U << 20).value(), path).value();
  const auto integers = [](const Json& list) {
    std::vector<int32_t> numbers;
    for (const Json& number : list.as_array())
      numbers.push_back(static_cast<int32_t>(number.as_int()));
    return numbers;
  };
  const auto prompt = static_cast<size_t>(golden.find("prompt")->as_int());
  std::vector<int64_t> right(static_cast<size_t>(golden.find("steps")->as_int()));
  int64_t places = 0, same = 0;
  for (const Json& text : golden.find("texts")->as_array()) {
    const std::vector<int32_t> ids = integers(*text.find("ids"));
    TestSession session(*backend, config, {.tokens_max = 256, .rows_max = 64});
    session.pass({{.tokens = std::span(ids).first(prompt)}});
    size_t place = prompt;
    for (const Json& expected : text.find("drafts")->as_array()) {
      const auto drafted =
          session.draft({{.token = ids[place], .count = static_cast<int32_t>(right.size())}});
      same += drafted.tokens[0] == integers(expected) ? 1 : 0;
      for (size_t n = 0; n < right.size() && drafted.tokens[0][n] == ids[place + 1 + n]; ++n)
        ++right[n];
      session.pass(
          {{.tokens = std::span(ids).subspan(place++, 1), .arithmetic = Arithmetic::generation}});
      ++places;
    }
  }
  const std::vector<int32_t> expected = integers(*golden.find("right")->find("by_position"));
  EXPECT_EQ(places, golden.find("right")->find("places")->as_int());
  for (size_t n = 0; n < right.size(); ++n) {
    EXPECT_LE(std::abs(right[n] - expected[n]), 1 + places / 100) << n << ": " << right[n];
  }
  EXPECT_GE(same, places - 1 - places / 100);
}

INSTANTIATE_TEST_SUITE_P(Models, CpuMtp, testing::ValuesIn(mtp_golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

}  // namespace
}  // namespace nibble
