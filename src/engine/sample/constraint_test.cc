// Repetition, thinking budget and chains of constraints: each by its definition over the whole list
// of tokens, in pieces, with drafts, and taken back.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "engine/sample/constraint_chain.h"
#include "engine/sample/repetition.h"
#include "engine/sample/sampler.h"
#include "engine/sample/thinking_budget.h"
#include "engine/sample/token_bits.h"

namespace nibble {
namespace {

using Tokens = std::vector<int32_t>;
constexpr int32_t kVocab = 40;
constexpr int32_t kThink = 30;
constexpr int32_t kNewline = 31;
constexpr int32_t kEndThink = 32;

std::vector<int32_t> allowed(TokenConstraint& constraint, const Tokens& drafted = {}) {
  std::vector<uint32_t> bits = Sampler::all_sampleable(kVocab);
  const auto state = constraint.mask(drafted, bits);
  std::vector<int32_t> out;
  for (int32_t t = 0; t < kVocab; ++t)
    if (has_token(bits, t)) out.push_back(t);
  EXPECT_TRUE(state == TokenConstraint::MaskState::limited || out.size() == size_t{kVocab});
  return out;
}

/// The definition, computed directly: the tokens end in `count` equal patterns of an allowed size.
bool ends_in_circles(const Tokens& tokens, const RepetitionLimits& limits) {
  for (int32_t p = limits.pattern_min; p <= limits.pattern_max; ++p) {
    const auto span = static_cast<size_t>(p * limits.count_min);
    if (span > tokens.size()) continue;
    const Tokens tail(tokens.end() - static_cast<ptrdiff_t>(span), tokens.end());
    bool same = true;
    for (size_t i = 0; i < span; ++i) same &= tail[i] == tail[i % static_cast<size_t>(p)];
    if (same) return true;
  }
  return false;
}

TEST(RepetitionStop, EndsAtTheLastTokenOfTheLastRepeat) {
  RepetitionStop stop({.pattern_min = 1, .pattern_max = 4, .count_min = 3});
  EXPECT_EQ(stop.accept(Tokens{1, 2, 3, 1, 2, 3, 1, 2}), std::nullopt);
  EXPECT_EQ(stop.accept(Tokens{3, 9}), 1U);
  EXPECT_EQ(stop.reason(), FinishReason::repetition);
  EXPECT_EQ(allowed(stop).size(), size_t{kVocab});
}

TEST(RepetitionStop, ShortPatternsBelowTheLeastAreNoLoop) {
  RepetitionStop stop({.pattern_min = 3, .pattern_max = 5, .count_min = 2});
  EXPECT_EQ(stop.accept(Tokens{1, 2, 1, 2, 1}), std::nullopt);
  // Six equal tokens are two equal patterns of three.
  EXPECT_EQ(stop.accept(Tokens{7, 7, 7, 7, 7, 7}), 6U);
}

TEST(RepetitionStop, IsItsDefinitionOnRandomText) {
  std::mt19937 random(5);
  int stops = 0;
  for (int round = 0; round < 400; ++round) {
    const auto pick = [&](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(random);
    };
    const int least = pick(1, 3);
    const RepetitionLimits limits{
        .pattern_min = least, .pattern_max = least + pick(0, 4), .count_min = pick(2, 4)};
    RepetitionStop stop(limits);
    Tokens tokens;
    for (int i = 0; i < 60; ++i) {
      tokens.push_back(pick(0, 2));
      const bool expected = ends_in_circles(tokens, limits);
      ASSERT_EQ(stop.accept({&tokens.back(), 1}).has_value(), expected) << round << " at " << i;
      if (!expected) continue;
      ++stops;
      // Taken back, the text goes on as if the token had never come.
      const auto back = static_cast<size_t>(pick(1, static_cast<int>(tokens.size())));
      stop.rollback(back);
      tokens.resize(tokens.size() - back);
    }
  }
  EXPECT_GT(stops, 400);
}

ThinkingBudget budget(int32_t tokens, ThinkingBudget::Start start = ThinkingBudget::Start::inside) {
  return ThinkingBudget(
      {.begin = kThink, .closing = {kNewline, kEndThink}, .tokens_max = tokens, .start = start});
}

TEST(ThinkingBudget, ForcesTheClosingSequenceOnce) {
  ThinkingBudget thinking = budget(3);
  thinking.accept(Tokens{1, 2});
  EXPECT_EQ(allowed(thinking).size(), size_t{kVocab});
  thinking.accept(Tokens{3});
  EXPECT_EQ(allowed(thinking), Tokens{kNewline});
  thinking.accept(Tokens{kNewline});
  EXPECT_EQ(allowed(thinking), Tokens{kEndThink});
  thinking.accept(Tokens{kEndThink});
  EXPECT_EQ(allowed(thinking).size(), size_t{kVocab} - 1);  // all but <think>
  EXPECT_EQ(std::ranges::count(allowed(thinking), kThink), 0);
}

TEST(ThinkingBudget, SeesDraftedTokens) {
  ThinkingBudget thinking = budget(3);
  thinking.accept(Tokens{1});
  EXPECT_EQ(allowed(thinking, {2}).size(), size_t{kVocab});
  EXPECT_EQ(allowed(thinking, {2, 3}), Tokens{kNewline});
  EXPECT_EQ(allowed(thinking, {2, 3, kNewline}), Tokens{kEndThink});
  EXPECT_EQ(allowed(thinking, {2, 3, kNewline, kEndThink}).size(), size_t{kVocab} - 1);
  EXPECT_EQ(allowed(thinking).size(), size_t{kVocab});  // drafts were not accepted
}

TEST(ThinkingBudget, AnEarlyEndLeavesTheRestForLater) {
  ThinkingBudget thinking = budget(3);
  thinking.accept(Tokens{1, kEndThink, 5, 6, 7, 8, kThink, 2});
  EXPECT_EQ(allowed(thinking).size(), size_t{kVocab});
  thinking.accept(Tokens{3});
  EXPECT_EQ(allowed(thinking), Tokens{kNewline});
  thinking.rollback(1);
  EXPECT_EQ(allowed(thinking).size(), size_t{kVocab});
}

TEST(ThinkingBudget, NothingIsForcedOutside) {
  ThinkingBudget none = budget(0, ThinkingBudget::Start::outside);
  EXPECT_EQ(allowed(none).size(), size_t{kVocab} - 1);
  ThinkingBudget at_once = budget(0);
  EXPECT_EQ(allowed(at_once), Tokens{kNewline});
}

TEST(ThinkingBudget, ClosesAtAPositionWhateverWasThought) {
  ThinkingBudget thinking({.begin = kThink,
                           .closing = {kNewline, kEndThink},
                           .tokens_max = 100,
                           .position_max = 6,
                           .start = ThinkingBudget::Start::inside});
  thinking.accept(Tokens{1, kEndThink, 5, 6, kThink});
  EXPECT_EQ(allowed(thinking).size(), size_t{kVocab});
  EXPECT_EQ(allowed(thinking, {2}), Tokens{kNewline});
  thinking.accept(Tokens{2});
  EXPECT_EQ(allowed(thinking), Tokens{kNewline});
  EXPECT_EQ(allowed(thinking, {kNewline}), Tokens{kEndThink});
  thinking.accept(Tokens{kNewline, kEndThink});
  EXPECT_EQ(allowed(thinking).size(), size_t{kVocab});
  EXPECT_EQ(allowed(thinking, {kThink}), Tokens{kNewline});  // closed again at once
  thinking.rollback(3);
  EXPECT_EQ(allowed(thinking).size(), size_t{kVocab});
}

TEST(ThinkingBudget, ForcesWhatIsLeftOfTheClosingSequence) {
  ThinkingBudget thinking(budget(2));
  EXPECT_EQ(thinking.forced(8), Tokens{});
  thinking.accept(Tokens{1, 2});
  EXPECT_EQ(thinking.forced(8), (Tokens{kNewline, kEndThink}));
  EXPECT_EQ(thinking.forced(1), Tokens{kNewline});
  thinking.accept(Tokens{kNewline});
  EXPECT_EQ(thinking.forced(8), Tokens{kEndThink});
  ConstraintChain::Members members;
  members.push_back(std::make_unique<RepetitionStop>(RepetitionLimits{.pattern_max = 2}));
  members.push_back(std::make_unique<ThinkingBudget>(std::move(thinking)));
  EXPECT_EQ(chained(std::move(members))->forced(8), Tokens{kEndThink});
}

/// Ends the sequence after its n-th token.
class EndAt final : public TokenConstraint {
 public:
  explicit EndAt(size_t n) : n_(n) {}
  MaskState mask(std::span<const int32_t>, std::span<uint32_t> bits) override {
    forbid_token(bits, 5);
    return MaskState::limited;
  }
  std::optional<size_t> accept(std::span<const int32_t> tokens) override {
    taken += tokens.size();
    if (taken < n_) return std::nullopt;
    const size_t over = taken - n_;
    taken = n_;
    return tokens.size() - over;
  }
  void rollback(size_t count) override { taken -= count; }
  size_t taken = 0;

 private:
  size_t n_;
};

TEST(ConstraintChain, EarliestEndWinsAndGivesTheReason) {
  auto late = std::make_unique<EndAt>(6);
  auto early = std::make_unique<EndAt>(4);
  const EndAt* const watched_late = late.get();
  const EndAt* const watched_early = early.get();
  ConstraintChain::Members members;
  members.push_back(std::move(late));
  members.push_back(
      std::make_unique<RepetitionStop>(RepetitionLimits{.pattern_max = 2, .count_min = 3}));
  members.push_back(std::move(early));
  ConstraintChain chain(std::move(members));
  EXPECT_EQ(chain.accept(Tokens{1, 2, 3, 4, 4, 4, 4}), 4U);
  EXPECT_EQ(finish_reason_of(chain), FinishReason::stop);
  EXPECT_EQ(watched_late->taken, 4U);
  chain.rollback(2);
  EXPECT_EQ(watched_late->taken, 2U);
  EXPECT_EQ(watched_early->taken, 2U);
  ConstraintChain::Members loop;
  loop.push_back(std::make_unique<EndAt>(3));
  loop.push_back(
      std::make_unique<RepetitionStop>(RepetitionLimits{.pattern_max = 1, .count_min = 2}));
  ConstraintChain circles(std::move(loop));
  EXPECT_EQ(circles.accept(Tokens{8, 8, 8}), 2U);
  EXPECT_EQ(finish_reason_of(circles), FinishReason::repetition);
}

TEST(ConstraintChain, MasksIntersect) {
  ConstraintChain::Members members;
  members.push_back(std::make_unique<EndAt>(100));
  members.push_back(std::make_unique<ThinkingBudget>(budget(1, ThinkingBudget::Start::outside)));
  ConstraintChain chain(std::move(members));
  EXPECT_EQ(allowed(chain).size(), size_t{kVocab} - 1);
  EXPECT_EQ(allowed(chain, {kThink, 9}), Tokens{kNewline});
}

TEST(ConstraintChain, OfNoneAndOfOne) {
  EXPECT_EQ(chained({}), nullptr);
  ConstraintChain::Members one;
  one.push_back(std::make_unique<EndAt>(1));
  const TokenConstraint* const only = one.front().get();
  EXPECT_EQ(chained(std::move(one)).get(), only);
}

std::unique_ptr<TokenConstraint> everything() {
  ConstraintChain::Members members;
  members.push_back(std::make_unique<ThinkingBudget>(ThinkingBudget::Options{
      .begin = kThink, .closing = {kNewline, kEndThink}, .tokens_max = 6, .position_max = 20}));
  members.push_back(
      std::make_unique<RepetitionStop>(RepetitionLimits{.pattern_max = 5, .count_min = 3}));
  members.push_back(std::make_unique<EndAt>(40));
  members.push_back(
      std::make_unique<RepetitionStop>(RepetitionLimits{.pattern_min = 2, .pattern_max = 3}));
  return std::make_unique<ConstraintChain>(std::move(members));
}

size_t fitting_by_masks(TokenConstraint& constraint, const Tokens& drafted) {
  for (size_t i = 0; i < drafted.size(); ++i) {
    const Tokens before(drafted.begin(), drafted.begin() + static_cast<ptrdiff_t>(i));
    const std::vector<int32_t> may = allowed(constraint, before);
    if (std::ranges::find(may, drafted[i]) == may.end()) return i;
  }
  return drafted.size();
}

/// Whatever was accepted in pieces and taken back is as if only the rest had been accepted, token
/// by token: the same end, the same masks for the same drafts.
TEST(ConstraintChain, PiecesAndRollbacksLeaveNoTrace) {
  std::mt19937 random(11);
  const auto pick = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  const auto token = [&] {
    const int special = pick(9);
    return special == 0 ? kEndThink : special == 1 ? kThink : special == 2 ? kNewline : pick(4);
  };
  int ends = 0;
  for (int seed = 0; seed < 2000; ++seed) {
    const auto tried = everything();
    Tokens kept;
    for (int step = 0; step < 12; ++step) {
      Tokens piece(static_cast<size_t>(1 + pick(4)));
      std::ranges::generate(piece, token);
      const auto alone = everything();
      std::optional<size_t> expected;
      for (const int32_t t : kept) ASSERT_FALSE(alone->accept({&t, 1}));
      for (size_t i = 0; i < piece.size() && !expected; ++i)
        if (alone->accept({&piece[i], 1})) expected = i + 1;
      const auto found = tried->accept(piece);
      ASSERT_EQ(found, expected) << "seed " << seed << " step " << step;
      if (found) {
        ASSERT_EQ(finish_reason_of(*tried), finish_reason_of(*alone)) << "seed " << seed;
        piece.resize(*found);
        ++ends;
      }
      kept.insert(kept.end(), piece.begin(), piece.end());
      Tokens drafted(static_cast<size_t>(pick(3)));
      std::ranges::generate(drafted, token);
      ASSERT_EQ(allowed(*tried, drafted), allowed(*alone, drafted)) << "seed " << seed;
      ASSERT_EQ(tried->fitting(drafted), fitting_by_masks(*alone, drafted)) << "seed " << seed;
      // An end is always taken back here, so that the sequence can go on.
      const int back = found || pick(2) == 0 ? pick(static_cast<int>(kept.size())) : 0;
      const size_t count = std::max<size_t>(static_cast<size_t>(back), found ? 1 : 0);
      tried->rollback(count);
      kept.resize(kept.size() - count);
    }
  }
  EXPECT_GT(ends, 1500);
}

}  // namespace
}  // namespace nibble
