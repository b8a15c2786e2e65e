// Passes that begin before the tokens of the pass before are read, in an engine whose model has a
// layer that drafts: they do where nobody drafts, and what is said is the same.
#include <gtest/gtest.h>

#include <utility>

#include "engine/sample/token_bits.h"
#include "engine/testing/core_fixture.h"
#include "engine/testing/fake_grammar.h"

namespace nibble {
namespace {

/// An engine whose layer drafts wrong, and takes long for it, so that nobody drafts but for trials.
struct WrongDrafts {
  explicit WrongDrafts(int32_t repeat_match = 0) : fixture(settings(repeat_match), kModel) {
    fixture.backend.drafts_wrong = true;
    fixture.backend.on_draft = [this](int steps) { now_ms += 30.0 * steps; };
    fixture.backend.on_wait = [this](int) { now_ms += 5.0; };
  }
  EngineSettings settings(int32_t repeat_match) {
    EngineSettings settings = CoreFixture::small();
    settings.pools.replay_rows = 4;
    settings.model_drafts = 3;
    settings.repeat_match = repeat_match;
    settings.clock_ms = [this] { return now_ms; };
    return settings;
  }
  const EngineCounters& run(SequenceRequest request) {
    fixture.core->submit(std::move(request));
    fixture.run();
    return fixture.core->counters();
  }
  static constexpr FakeBackend::Model kModel{.chooses = true, .overlaps = true, .drafts = 0};
  double now_ms = 1.0;
  CoreFixture fixture;
};

TEST(EngineAheadOfDrafts, PassesInWhichNobodyDraftsOverlap) {
  for (const double temperature : {0.0, 1.0}) {
    SequenceRequest request = greedy(1, {1, 2, 3}, 400);
    request.sampling.temperature = temperature;
    const std::vector<int32_t> expected = expected_tokens(request);
    WrongDrafts engine;
    const EngineCounters& counters = engine.run(std::move(request));
    EXPECT_EQ(engine.fixture.outcomes[1].tokens, expected);
    EXPECT_GT(counters.passes_ahead, 350);
    EXPECT_GT(counters.draft_rounds, 1);  // it is tried again
  }
}

/// Lets all tokens follow, and after so many only one.
class OneAfter final : public TokenConstraint {
 public:
  explicit OneAfter(int free) : free_(free) {}
  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) override {
    if (std::cmp_less(drafted.size(), free_)) return MaskState::open;
    for (int32_t token = 0; token < FakeBackend::kVocab; ++token)
      if (token != 7) forbid_token(bits, token);
    return MaskState::limited;
  }
  std::optional<size_t> accept(std::span<const int32_t> tokens) override {
    free_ -= static_cast<int>(tokens.size());
    return std::nullopt;
  }
  void rollback(size_t) override { FAIL(); }

 private:
  int free_;
};

/// A repeat is found a token late while passes overlap, and drafted from then on.
TEST(EngineAheadOfDrafts, ATextThatRepeatsItselfEndsTheOverlap) {
  constexpr int kFree = 60;
  constexpr int kMatch = 4;
  SequenceRequest request = greedy(1, {1, 2, 3}, 120);
  request.constraint = std::make_unique<OneAfter>(kFree);
  WrongDrafts engine(kMatch);
  CoreFixture& fixture = engine.fixture;
  const EngineCounters& counters = fixture.core->counters();
  const int64_t& by_text = counters.drafted_by[static_cast<size_t>(Proposer::text)];
  fixture.core->submit(std::move(request));
  while (by_text == 0 && !fixture.core->idle()) fixture.take(fixture.core->step());
  EXPECT_GT(counters.passes_ahead, 40);
  // The repeated tokens, one that was read late, and those of the round.
  EXPECT_LE(fixture.outcomes[1].tokens.size(), kFree + kMatch + 1 + 3U);
  fixture.run();
  EXPECT_GT(counters.right_by[static_cast<size_t>(Proposer::text)], 20);
  EXPECT_EQ(fixture.outcomes[1].tokens.size(), 120U);
}

/// Its grammar forces a token every now and then, which no pass ahead would draft.
TEST(EngineAheadOfDrafts, ASequenceThatMayBeForcedDoesNotOverlap) {
  SequenceRequest request = greedy(1, {1, 2, 3}, 60);
  request.constraint = std::make_unique<FakeGrammar>(3);
  WrongDrafts engine;
  const EngineCounters& counters = engine.run(std::move(request));
  EXPECT_EQ(counters.passes_ahead, 0);
  EXPECT_GT(counters.right_by[static_cast<size_t>(Proposer::grammar)], 5);
}

}  // namespace
}  // namespace nibble
