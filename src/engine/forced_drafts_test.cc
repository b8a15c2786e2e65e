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

/// Masks that let one token follow, which they do not tell of beforehand: a text of a period.
class Periodic : public TokenConstraint {
 public:
  explicit Periodic(size_t period = 5) : period_(period) {}
  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) override {
    forbid_all_but(bits, token(drafted.size()));
    return MaskState::limited;
  }
  std::optional<size_t> accept(std::span<const int32_t> tokens) override {
    accepted_ += tokens.size();
    return std::nullopt;
  }
  void rollback(size_t count) override { accepted_ -= count; }

 protected:
  int32_t token(size_t after) const { return static_cast<int32_t>((accepted_ + after) % period_); }

 private:
  size_t period_;
  size_t accepted_ = 0;
};

/// The same, which refuses wrong drafts.
class Refusing final : public Periodic {
 public:
  using Periodic::Periodic;
  size_t fitting(std::span<const int32_t> drafted) override {
    size_t count = 0;
    while (count < drafted.size() && drafted[count] == token(count)) ++count;
    return count;
  }
};

/// The same as Periodic, which forces the next token and half of the one after it.
class PartlyForcing final : public Periodic {
 public:
  std::vector<int32_t> forced(size_t most) override {
    if (most < 2) return {};
    return {token(0), (token(1) + 1) % FakeBackend::kVocab};
  }
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

/// The last forced token may be a part of a longer one, so another in its place is no
/// contradiction.
TEST(RepeatDrafts, TakeThePlaceOfForcedTokensButTheLast) {
  const Said plain = said_under(std::make_unique<Periodic>(), Drafting::none);
  const Said repeats = said_under(std::make_unique<PartlyForcing>(), Drafting::model, 1, 12);
  EXPECT_EQ(repeats.tokens, plain.tokens);
  EXPECT_GT(repeats.right_by(Proposer::text), 100);
}

/// However many of other sequences were wrong, a new one drafts at once.
TEST(ModelDrafts, AreTriedInANewSequenceAfterManyWrongOnes) {
  FakeBackend backend({.drafts = 1});
  double now_ms = 1.0;
  backend.on_pass = [&](int) { now_ms += 5.0; };
  backend.on_draft = [&](int) { now_ms += 0.1; };
  const EngineSettings settings{
      .pools = {.pages = 8, .state_slots = 2, .rows_max = 72, .replay_rows = 5},
      .sequences_max = 1,
      .context_max = 512,
      .model_drafts = 3,
      .clock_ms = [&] { return now_ms; }};
  EXPECT_TRUE(backend.reserve(settings.pools).ok());
  EngineCore core(backend, FakeBackend::config(),
                  Sampler(FakeBackend::kVocab, Sampler::all_sampleable(FakeBackend::kVocab)),
                  settings);
  for (int32_t id = 1; id < 5; ++id) {
    const int64_t before = core.counters().drafted;
    core.submit({.id = static_cast<uint64_t>(id), .prompt = {id}, .max_tokens = 300});
    for (int i = 0; i < 4; ++i) core.step();
    EXPECT_GE(core.counters().drafted, before + 1) << "sequence " << id;
    while (!core.idle()) core.step();
  }
}

/// Drafts of the model that are refused are as wrong as those that are computed: fewer are made.
TEST(ModelDrafts, LearnFromTheConstraintThatRefusesThem) {
  const Said said = said_under(std::make_unique<Refusing>(), Drafting::model, 1);
  EXPECT_EQ(said.by(Proposer::model), said.right_by(Proposer::model));
  EXPECT_LT(said.counters.drafts_refused, 300);  // not three in each of 198 passes
}

TEST(RepeatDrafts, StayWhereTheConstraintRefusesThoseOfTheModel) {
  const Said said = said_under(std::make_unique<Refusing>(1), Drafting::model, 1, 1);
  EXPECT_EQ(said.by(Proposer::text), said.right_by(Proposer::text));
  EXPECT_EQ(said.by(Proposer::text), 95);  // in every pass with room for a draft and a repeat
}

}  // namespace
}  // namespace nibble
