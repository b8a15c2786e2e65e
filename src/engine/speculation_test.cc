// Drafted rows: what is proposed, what is accepted. Over the fake model; random lives are in
// simulation.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "engine/engine_core.h"
#include "engine/sample/constraint_chain.h"
#include "engine/sample/token_bits.h"
#include "engine/testing/fake_backend.h"

namespace nibble {
namespace {

using Tokens = std::vector<int32_t>;

Sequence saying(Tokens prompt, Tokens generated) {
  Sequence s;
  s.request.prompt = std::move(prompt);
  s.generated = std::move(generated);
  return s;
}

Tokens proposed(const Sequence& s, int32_t count, const NgramDrafter::Options& options = {}) {
  Tokens drafts;
  NgramDrafter(options).propose(s, count, drafts);
  return drafts;
}

TEST(NgramDrafter, RepeatsWhatFollowedTheLongestMatch) {
  const Sequence s = saying({1, 2, 3, 4, 5, 9, 3, 4, 6, 7}, {2, 3, 4});
  EXPECT_EQ(proposed(s, 3), (Tokens{5, 9, 3}));  // after "2 3 4", not after the later "3 4"
  EXPECT_EQ(proposed(s, 1), (Tokens{5}));
  EXPECT_EQ(proposed(s, 3, {.match_min = 2, .match_max = 2}), (Tokens{6, 7, 2}));  // the latest
  EXPECT_EQ(proposed(s, 3, {.match_min = 4, .match_max = 5}), Tokens{});
  EXPECT_EQ(proposed(s, 3, {.look_back_max = 6}), Tokens{});
}

TEST(NgramDrafter, WhatWasProposedBeforeIsGone) {
  NgramDrafter drafter({});
  Tokens drafts = {8, 9};
  drafter.propose(saying({1, 2, 3, 1}, {2}), 2, drafts);
  EXPECT_EQ(drafts, (Tokens{3, 1}));
  drafter.propose(saying({1, 2}, {}), 2, drafts);
  EXPECT_EQ(drafts, Tokens{});
}

TEST(NgramDrafter, MatchesMayOverlapTheEnd) {
  EXPECT_EQ(proposed(saying({8}, {7, 7, 7, 7}), 4), (Tokens{7}));
  EXPECT_EQ(proposed(saying({1, 2, 1, 2, 1}, {2}), 4), (Tokens{1, 2}));
  EXPECT_EQ(proposed(saying({5}, {}), 4), Tokens{});
  EXPECT_EQ(proposed(saying({5, 5}, {}), 4), Tokens{});
}

TEST(NgramDrafter, ATokenBeforeWhatIsSearchedIsNoMatch) {
  const Sequence s = saying({1, 7, 8, 9, 5, 6}, {1});
  EXPECT_EQ(proposed(s, 3, {.match_min = 1, .look_back_max = 7}), (Tokens{7, 8, 9}));
  EXPECT_EQ(proposed(s, 3, {.match_min = 1, .look_back_max = 6}), Tokens{});
  EXPECT_EQ(proposed(saying({7, 8, 9}, {1}), 3, {.match_min = 1}), Tokens{});
}

/// Proposes what a table says comes at each place, and counts what it was asked.
class TableDrafter final : public Drafter {
 public:
  explicit TableDrafter(Tokens text) : text_(std::move(text)) {}
  void propose(const Sequence& s, int32_t count_max, Tokens& drafts) override {
    for (size_t i = s.generated.size(); i < text_.size() && std::cmp_less(drafts.size(), count_max);
         ++i)
      drafts.push_back(text_[i]);
  }

 private:
  Tokens text_;
};

class Asked {
 public:
  explicit Asked(std::shared_ptr<Drafter> drafter, CacheMode mode = CacheMode::exact,
                 const FakeBackend::Model& model = {})
      : backend_(model), core_([&] {
          EngineSettings settings{
              .pools = {.pages = 24, .state_slots = 8, .rows_max = 132, .replay_rows = 5},
              .sequences_max = 4,
              .context_max = 1024,
              .cache = mode,
              .drafter = std::move(drafter),
              .model_drafts = model.drafts ? 4 : 0,
              .integrity = IntegrityChecks::every_step,
              .clock_ms = [this] { return clock_ms; }};  // costs stay those assumed
          EXPECT_TRUE(backend_.reserve(settings.pools).ok());
          constexpr int32_t kVocab = FakeBackend::kVocab;
          return EngineCore(backend_, FakeBackend::config(),
                            Sampler(kVocab, Sampler::all_sampleable(kVocab)), settings);
        }()) {}

  Tokens finish(SequenceRequest request) {
    Tokens tokens;
    EXPECT_TRUE(core_.admissible(request).ok());
    core_.submit(std::move(request));
    while (!core_.idle())
      for (const EngineEvent& event : core_.step()) {
        if (const auto* fresh = std::get_if<NewTokens>(&event))
          tokens.insert(tokens.end(), fresh->tokens.begin(), fresh->tokens.end());
        if (const auto* end = std::get_if<Finished>(&event)) end_ = *end;
      }
    return tokens;
  }
  const EngineCounters& counters() const { return core_.counters(); }
  const Finished& end() const { return end_; }
  EngineCore& core() { return core_; }
  FakeBackend& backend() { return backend_; }

  double clock_ms = 1.0;

 private:
  FakeBackend backend_;
  EngineCore core_;
  Finished end_;
};

SequenceRequest ask(int32_t max_tokens) {
  SequenceRequest request;
  request.id = 1;
  for (int32_t i = 0; i < 70; ++i) request.prompt.push_back(i * 7 % FakeBackend::kVocab);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0.0;
  return request;
}

TEST(Speculation, RightDraftsSavePassesAndWrongOnesChangeNothing) {
  Asked plain(nullptr);
  const Tokens text = plain.finish(ask(100));
  Asked right(std::make_shared<TableDrafter>(text));
  EXPECT_EQ(right.finish(ask(100)), text);
  EXPECT_EQ(right.counters().drafted, right.counters().drafts_right);
  EXPECT_LT(right.counters().passes, plain.counters().passes / 3);
  Tokens wrong = text;
  for (size_t i = 0; i < wrong.size(); i += 3) wrong[i] = (wrong[i] + 1) % FakeBackend::kVocab;
  Asked mixed(std::make_shared<TableDrafter>(wrong));
  EXPECT_EQ(mixed.finish(ask(100)), text);
  EXPECT_GT(mixed.counters().drafts_right, 10);
  EXPECT_GT(mixed.counters().drafted - mixed.counters().drafts_right, 10);
}

TEST(Speculation, PenaltiesAndMinTokensSeeTheDrafts) {
  SequenceRequest request = ask(60);
  request.sampling.temperature = 1.0;
  request.sampling.presence_penalty = 1.5;
  request.sampling.repetition_penalty = 1.2;
  request.min_tokens = 30;
  for (int32_t id = 0; id < 20; ++id) request.stop_ids.push_back(id);
  const auto again = [&] {
    SequenceRequest copy = ask(60);
    copy.sampling = request.sampling;
    copy.min_tokens = request.min_tokens;
    copy.stop_ids = request.stop_ids;
    return copy;
  };
  Asked plain(nullptr);
  const Tokens text = plain.finish(again());
  EXPECT_GE(text.size(), 30U);
  Asked drafted(std::make_shared<TableDrafter>(text));
  EXPECT_EQ(drafted.finish(again()), text);
  EXPECT_EQ(drafted.end().stop_token, plain.end().stop_token);
  EXPECT_GT(drafted.counters().drafts_right, 10);
}

/// A backend that chooses gets each drafted row's own random number and history.
TEST(Speculation, ABackendThatChoosesTakesTheDraftsThatTheHostTakes) {
  const auto request = [] {
    SequenceRequest asked = ask(200);
    asked.sampling.temperature = 1.0;
    asked.sampling.frequency_penalty = 0.3;
    return asked;
  };
  Asked plain(nullptr);
  const Tokens text = plain.finish(request());
  EXPECT_EQ(plain.counters().sampled_there, 0);
  Asked drafted(std::make_shared<TableDrafter>(text), CacheMode::exact, {.chooses = true});
  EXPECT_EQ(drafted.finish(request()), text);
  EXPECT_GT(drafted.counters().drafts_right, 100);
  EXPECT_EQ(drafted.counters().sampled_here, 0);
  EXPECT_GE(drafted.counters().sampled_there, 200);
}

/// A layer that drafts what the model says: nearly every row is a token.
TEST(ModelDrafts, SavePassesAndChangeNothing) {
  const auto request = [](double temperature) {
    SequenceRequest asked = ask(200);
    asked.sampling.temperature = temperature;
    return asked;
  };
  for (const double temperature : {0.0, 1.0}) {
    Asked plain(nullptr);
    const Tokens text = plain.finish(request(temperature));
    EXPECT_EQ(plain.end().drafted_tokens, 0);
    for (const uint64_t wrong_every : {0, 5}) {
      Asked drafted(nullptr, CacheMode::exact, {.drafts = wrong_every});
      EXPECT_EQ(drafted.finish(request(temperature)), text);
      const EngineCounters& counters = drafted.counters();
      EXPECT_EQ(drafted.end().drafted_tokens, counters.drafted);
      EXPECT_EQ(drafted.end().accepted_tokens, counters.drafts_right);
      int64_t by_place = 0;
      for (const int64_t right : counters.right_at) by_place += right;
      EXPECT_EQ(by_place, counters.drafts_right);
      EXPECT_GE(counters.right_at[0], counters.right_at[1]);
      EXPECT_GE(counters.drafted, counters.draft_rounds);
      if (temperature > 0.0) continue;
      EXPECT_EQ(counters.drafted == counters.drafts_right, wrong_every == 0);
      EXPECT_GT(counters.drafts_right, 70);
      EXPECT_LT(counters.passes, plain.counters().passes * 2 / 3);
      if (wrong_every == 0) {
        EXPECT_LT(counters.passes, plain.counters().passes / 3);
      }
    }
  }
}

TEST(ModelDrafts, ThatAreNoNumbersEndAndNothingElse) {
  Asked plain(nullptr);
  const Tokens text = plain.finish(ask(100));
  Asked broken(nullptr, CacheMode::exact, {.drafts = 0});
  broken.backend().drafts_broken = true;
  EXPECT_EQ(broken.finish(ask(100)), text);
  EXPECT_EQ(broken.counters().drafted, 0);
  EXPECT_EQ(broken.counters().drafts_ended, 1);  // it is asked once
  EXPECT_EQ(broken.counters().not_finite, 0);
  EXPECT_EQ(broken.end().reason, FinishReason::length);
}

/// The first draft may read weights that no cache holds yet; that does not end drafting, however
/// long it takes.
TEST(ModelDrafts, AreTriedAgainAfterOneThatWasSlow) {
  Asked drafted(nullptr, CacheMode::exact, {.drafts = 0});
  bool first = true;
  drafted.backend().on_draft = [&](int) {
    if (std::exchange(first, false)) drafted.clock_ms += 200.0;
  };
  drafted.finish(ask(900));
  EXPECT_GT(drafted.counters().drafts_right, 600);
}

/// Rows of drafts write no state of their own, so none of them may be the last of a page.
TEST(Speculation, DraftsDoNotCostTheStateAtTheEndOfAPage) {
  const auto cached_by_next_turn = [](const Tokens& known) {
    Asked run(std::make_shared<TableDrafter>(known), CacheMode::fast);
    const Tokens said = run.finish(ask(100));
    if (!known.empty()) {
      EXPECT_GT(run.counters().drafts_right, 50);
    }
    SequenceRequest next = ask(1);
    next.prompt.insert(next.prompt.end(), said.begin(), said.end());
    run.finish(std::move(next));
    EXPECT_EQ(run.end().prompt_tokens, 170);
    return run.end().cached_tokens;
  };
  Asked plain(nullptr);
  EXPECT_EQ(cached_by_next_turn({}), 128);
  EXPECT_EQ(cached_by_next_turn(plain.finish(ask(100))), 128);
}

/// Only tokens of the other parity may follow a token; ends at the first above a limit.
class Alternates final : public TokenConstraint {
 public:
  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) override {
    const int32_t last = !drafted.empty() ? drafted.back() : last_;
    for (int32_t token = last % 2; token < FakeBackend::kVocab; token += 2)
      forbid_token(bits, token);
    return MaskState::limited;
  }
  std::optional<size_t> accept(std::span<const int32_t> tokens) override {
    for (size_t i = 0; i < tokens.size(); ++i, ++count_) {
      EXPECT_NE(tokens[i] % 2, last_ % 2);
      last_ = tokens[i];
      if (count_ == 45) return i + 1;
    }
    return std::nullopt;
  }
  void rollback(size_t) override { FAIL(); }

 private:
  int32_t last_ = 0;
  int count_ = 0;
};

TEST(Speculation, AConstraintMasksEveryDraftedRow) {
  const auto request = [] {
    SequenceRequest asked = ask(100);
    asked.constraint = std::make_unique<Alternates>();
    return asked;
  };
  Asked plain(nullptr);
  const Tokens text = plain.finish(request());
  EXPECT_EQ(text.size(), 46U);
  Asked drafted(std::make_shared<TableDrafter>(text));
  EXPECT_EQ(drafted.finish(request()), text);
  EXPECT_GT(drafted.counters().drafts_right, 20);
}

TEST(Speculation, AnAnchorKeepsTheStateBeforeItInFastMode) {
  const auto matched_after = [](bool anchored) {
    Asked run(nullptr, CacheMode::fast);
    SequenceRequest first = ask(200);
    const Tokens text = run.finish(ask(200));
    run.core().memory().cache().clear();
    if (anchored) first.cache.anchor_ids = {text[80]};
    const auto where = std::ranges::find(text, text[80]) - text.begin();
    const Tokens said = run.finish(std::move(first));
    SequenceRequest next = ask(1);  // leaves the text right after that token
    next.prompt.insert(next.prompt.end(), said.begin(), said.begin() + where + 1);
    for (int i = 0; i < 70; ++i) next.prompt.push_back(60);
    run.finish(std::move(next));
    return std::pair(run.end().cached_tokens, (70 + static_cast<int32_t>(where)) / 64 * 64);
  };
  const auto [without, page] = matched_after(false);
  EXPECT_EQ(without, 64);  // the prompt's own
  const auto [with, expected] = matched_after(true);
  EXPECT_GT(expected, 64);
  EXPECT_EQ(with, expected);
}

}  // namespace
}  // namespace nibble
