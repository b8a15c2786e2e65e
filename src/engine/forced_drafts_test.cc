// Drafts of constraints that force tokens, alone and beside the model's layer; texts that repeat
// themselves. Outputs stay those without drafts.
#include <gtest/gtest.h>

#include "engine/engine_core.h"
#include "engine/testing/fake_grammar.h"

namespace nibble {
namespace {

using Tokens = std::vector<int32_t>;

class NoDrafter final : public Drafter {
 public:
  void propose(const Sequence&, int32_t, Tokens&) override {}
};

/// Masks that let one token follow, which they do not tell of beforehand: a text of period 5.
class Periodic final : public TokenConstraint {
 public:
  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) override {
    forbid_all_but(bits, static_cast<int32_t>((accepted_ + drafted.size()) % 5));
    return MaskState::limited;
  }
  std::optional<size_t> accept(std::span<const int32_t> tokens) override {
    accepted_ += tokens.size();
    return std::nullopt;
  }
  void rollback(size_t count) override { accepted_ -= count; }

 private:
  size_t accepted_ = 0;
};

struct Said {
  Tokens tokens;
  EngineCounters counters;
  int64_t by(Proposer proposer) const { return counters.drafted_by[static_cast<size_t>(proposer)]; }
  int64_t right_by(Proposer proposer) const {
    return counters.right_by[static_cast<size_t>(proposer)];
  }
};

enum class Drafting : uint8_t { none, grammar, model };

/// 200 tokens under a constraint. The model's layer, if it drafts, is wrong every `wrong_every`-th
/// time.
Said said_under(std::unique_ptr<TokenConstraint> constraint, Drafting drafting,
                uint64_t wrong_every = 3, int32_t repeat_match = 0) {
  const bool model = drafting == Drafting::model;
  FakeBackend backend({.drafts = model ? std::optional(wrong_every) : std::nullopt});
  const EngineSettings settings{
      .pools = {.pages = 8, .state_slots = 2, .rows_max = 72, .replay_rows = 5},
      .sequences_max = 1,
      .context_max = 512,
      .drafter = drafting == Drafting::grammar ? std::make_shared<NoDrafter>() : nullptr,
      .model_drafts = model ? 3 : 0,
      .repeat_match = repeat_match,
      .integrity = IntegrityChecks::every_step,
      .clock_ms = [] { return 1.0; }};  // costs stay those assumed
  EXPECT_TRUE(backend.reserve(settings.pools).ok());
  EngineCore core(backend, FakeBackend::config(),
                  Sampler(FakeBackend::kVocab, Sampler::all_sampleable(FakeBackend::kVocab)),
                  settings);
  SequenceRequest request{.id = 1, .prompt = {1, 2, 3}, .max_tokens = 200};
  request.sampling.seed = 5;
  request.constraint = std::move(constraint);
  core.submit(std::move(request));
  Said said;
  while (!core.idle())
    for (const EngineEvent& event : core.step())
      if (const auto* fresh = std::get_if<NewTokens>(&event))
        said.tokens.insert(said.tokens.end(), fresh->tokens.begin(), fresh->tokens.end());
  said.counters = core.counters();
  return said;
}

TEST(ForcedDrafts, NeedNoDrafterAndAreRight) {
  for (uint64_t key = 1; key < 6; ++key) {
    const Said plain = said_under(std::make_unique<FakeGrammar>(key), Drafting::none);
    const Said drafted = said_under(std::make_unique<FakeGrammar>(key), Drafting::grammar);
    EXPECT_EQ(plain.counters.drafted, 0);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_EQ(drafted.counters.drafted, drafted.by(Proposer::grammar));
    EXPECT_EQ(drafted.by(Proposer::grammar), drafted.right_by(Proposer::grammar));
    EXPECT_GT(drafted.right_by(Proposer::grammar), 60);  // half of the places force their token
    EXPECT_LT(drafted.counters.passes, plain.counters.passes * 3 / 4);
  }
}

TEST(ForcedDrafts, StandBesideThoseOfTheModel) {
  int64_t of_model = 0;
  int64_t refused = 0;
  for (uint64_t key = 1; key < 6; ++key) {
    const Said plain = said_under(std::make_unique<FakeGrammar>(key), Drafting::none);
    const Said drafted = said_under(std::make_unique<FakeGrammar>(key), Drafting::model);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_EQ(drafted.by(Proposer::grammar), drafted.right_by(Proposer::grammar));
    EXPECT_GT(drafted.by(Proposer::grammar), 20);
    of_model += drafted.by(Proposer::model);
    refused += drafted.counters.drafts_refused;
  }
  EXPECT_GT(of_model, 60);
  EXPECT_GT(refused, 20);
}

/// Wrong drafts of the model give way to what the text said before.
TEST(RepeatDrafts, TakeThePlaceOfThoseOfTheModel) {
  const Said plain = said_under(std::make_unique<Periodic>(), Drafting::none);
  const Said model = said_under(std::make_unique<Periodic>(), Drafting::model, 1);
  const Said repeats = said_under(std::make_unique<Periodic>(), Drafting::model, 1, 12);
  EXPECT_EQ(model.tokens, plain.tokens);
  EXPECT_EQ(repeats.tokens, plain.tokens);
  EXPECT_EQ(model.by(Proposer::text), 0);
  EXPECT_EQ(repeats.by(Proposer::text), repeats.right_by(Proposer::text));
  EXPECT_GT(repeats.right_by(Proposer::text), 120);
  EXPECT_LT(repeats.counters.passes, model.counters.passes / 2);
  EXPECT_GT(repeats.by(Proposer::model), 0);  // at first there is no repeat
}

}  // namespace
}  // namespace nibble
