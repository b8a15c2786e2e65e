// Shares of prefill by weight, over many turns; the serving loop's side is in fairness_test.cc.
#include "engine/schedule/fair_share.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

/// How many of `turns` equal pieces each tenant got; tenant i has weight weights[i].
std::vector<int> pieces(const std::vector<double>& weights, int turns) {
  std::vector<PrefillTurn> waiting;
  for (size_t i = 0; i < weights.size(); ++i)
    waiting.push_back({.sequence = static_cast<int32_t>(i),
                       .tokens_left = 1 << 20,
                       .tenant = i,
                       .weight = weights[i],
                       .ms_left = 1000.0});
  FairShare shares(0.4);
  std::vector<int> got(weights.size(), 0);
  for (int i = 0; i < turns; ++i) {
    shares.begin(waiting);
    const PrefillTurn& turn = waiting[shares.pick(waiting)];
    ++got[static_cast<size_t>(turn.sequence)];
    shares.charge(turn, 10.0);
  }
  return got;
}

TEST(FairShare, TenantsShareByWeight) {
  EXPECT_EQ(pieces({1.0, 1.0}, 400), (std::vector<int>{200, 200}));
  const std::vector<int> got = pieces({3.0, 1.0, 4.0}, 800);
  EXPECT_NEAR(got[0], 300, 3);
  EXPECT_NEAR(got[1], 100, 3);
  EXPECT_NEAR(got[2], 400, 3);
}

/// Two tenants take turns, and one takes as much again for something else.
TEST(FairShare, CountsWhatIsTakenBesidePrompts) {
  std::vector<PrefillTurn> waiting;
  for (const int32_t i : {0, 1})
    waiting.push_back({.sequence = i,
                       .tokens_left = 1 << 20,
                       .tenant = static_cast<uint64_t>(i),
                       .ms_left = 1000.0});
  FairShare shares(0.4);
  shares.begin(waiting);
  shares.charge(7, 1000.0);  // it has no prompt
  std::vector<int> got(2, 0);
  for (int i = 0; i < 300; ++i) {
    shares.begin(waiting);
    const PrefillTurn& turn = waiting[shares.pick(waiting)];
    ++got[static_cast<size_t>(turn.sequence)];
    shares.charge(turn, 10.0);
    if (turn.sequence == 0) shares.charge(0, 10.0);
  }
  EXPECT_NEAR(got[0], 100, 2);
  EXPECT_NEAR(got[1], 200, 2);
}

/// Long prompts took 1,000 ms of a tenant, then it had none for a while: 600 ms are still owed to
/// its short ones, and nothing by the long ones.
TEST(FairShare, ASizeWithoutPromptsLosesItsDebt) {
  const PrefillTurn brief{.sequence = 0, .tokens_left = 1 << 20, .ms_left = 10.0};
  PrefillTurn longer = brief;
  longer.sequence = 1;
  longer.size = SizeClass::long_prompt;
  const std::vector<PrefillTurn> both{brief, longer};
  FairShare shares(0.4);
  shares.begin(both);
  shares.charge(longer, 1000.0);
  shares.begin(std::vector{brief});
  int brief_first = 0;
  for (bool is_brief = true; is_brief; brief_first += is_brief ? 1 : 0) {
    shares.begin(both);
    is_brief = both[shares.pick(both)].sequence == 0;
    shares.charge(brief, 10.0);
  }
  EXPECT_NEAR(brief_first, 75, 2);
}

}  // namespace
}  // namespace nibble
