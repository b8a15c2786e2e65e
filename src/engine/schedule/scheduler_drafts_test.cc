// Drafted rows: what they are worth, and what the scheduler grants them.
#include <gtest/gtest.h>

#include <vector>

#include "engine/schedule/scheduler.h"

namespace nibble {
namespace {

SequenceView drafting(int32_t drafts, double odds) {
  return {.phase = Phase::decode,
          .prompt_size = 1,
          .cached = 10,
          .tokens_max = 60,
          .pages_held = 1,
          .pages_private = 1,
          .drafts = drafts,
          .draft_odds = odds};
}
SequenceView prompt_of(uint64_t tenant) {
  return {.phase = Phase::prefill,
          .prompt_size = 256,
          .tokens_max = 256,
          .pages_held = 4,
          .pages_private = 4,
          .tenant = tenant};
}

TEST(SchedulerDrafts, AreGrantedWhileTheyPay) {
  const CostModel cost;  // of a GPU: 4.5 ms a pass, 0.08 ms a sequence, 0.05 ms a drafted row
  const auto granted = [&](int count, double odds, int32_t rows_max = 1024) {
    Scheduler scheduler({.rows_max = rows_max, .sequences_max = count}, cost);
    const std::vector<SequenceView> views(static_cast<size_t>(count), drafting(5, odds));
    int32_t rows = 0;
    for (const ScheduledRows& piece : scheduler.next(views, {.pages = 9}, 0.0).rows)
      rows += piece.rows - 1;
    return rows;
  };
  EXPECT_EQ(granted(1, 0.9), 5);
  EXPECT_EQ(granted(1, 0.1), 1);        // 0.1 x 4.58 ms pays for 0.05 ms, 0.01 x 4.58 does not
  EXPECT_EQ(granted(64, 0.7), 64 * 3);  // a token costs 0.15 ms: 0.7^4 is worth 0.036 ms
  EXPECT_EQ(granted(64, 0.3), 0);
  EXPECT_EQ(granted(4, 0.9, 4 + 64), 4 * 5);
}

/// Costs of drafts beside one sequence say nothing of 8, and what is absurd counts for little.
TEST(SchedulerDrafts, CostWhatTheyCostForSoManySequences) {
  Scheduler scheduler({.rows_max = 1024, .sequences_max = 64}, CostModel());
  const auto worth = [&](int32_t decoding) {
    return scheduler.drafts_worth(Proposer::model, 3, 0.9, decoding).count;
  };
  const auto pass_of_8 = [&](double more_ms) {
    scheduler.observe({.decode_rows = 8, .drafted_rows = 24}, 4.5 + 8 * 0.08 + more_ms);
  };
  for (int i = 0; i < 20; ++i) {
    scheduler.observe({.decode_rows = 1}, 4.58);
    scheduler.observe({.decode_rows = 1, .drafted_rows = 3}, 4.58 + 3 * 9.0);
    scheduler.observe({.decode_rows = 8}, 4.5 + 8 * 0.08);
    pass_of_8(24 * 0.05);
    scheduler.observe_drafts(1, 3, 3 * 0.2);
    scheduler.observe_drafts(8, 3, 3 * 0.2);
  }
  EXPECT_EQ(worth(1), 0);
  EXPECT_EQ(worth(8), 3);  // a draft of one of 8 costs an eighth of a step
  scheduler.observe_drafts(8, 1, 1e3);
  EXPECT_EQ(worth(8), 3);  // one absurd measurement is not believed,
  for (int i = 0; i < 20; ++i) scheduler.observe_drafts(8, 1, 1e3);
  EXPECT_EQ(worth(8), 0);  // many are
}

/// Before it is known what a pass takes there is nothing to compare with, and before it is known
/// what drafts take one is enough to learn it.
TEST(SchedulerDrafts, AreFewUntilTheirCostIsKnown) {
  Scheduler scheduler({.rows_max = 1024, .sequences_max = 64}, CostModel());
  const auto worth = [&] { return scheduler.drafts_worth(Proposer::model, 3, 0.9, 1).count; };
  EXPECT_EQ(worth(), 0);
  int passes = 0;
  for (; worth() == 0 && passes < 100; ++passes) scheduler.observe({.decode_rows = 1}, 1.6);
  EXPECT_LE(passes, 3);
  EXPECT_EQ(worth(), 1);
  const auto round = [&](double draft_ms, double row_ms) {
    scheduler.observe_drafts(1, 1, draft_ms);
    scheduler.observe({.decode_rows = 1, .drafted_rows = 1}, 1.6 + row_ms);
  };
  round(90.0, 50.0);  // the first of all is not believed
  EXPECT_EQ(worth(), 1);
  round(0.2, 0.5);
  EXPECT_EQ(worth(), 3);
  Scheduler unsteady({.rows_max = 1024, .sequences_max = 64}, CostModel());
  for (passes = 0; unsteady.drafts_worth(Proposer::model, 3, 0.9, 1).count == 0; ++passes)
    unsteady.observe({.decode_rows = 1}, passes % 2 == 0 ? 1.0 : 50.0);
  EXPECT_LE(passes, 16);
}

/// A step that few would take costs them as much as it costs many.
TEST(SchedulerDrafts, AStepPaysForThoseThatTakeIt) {
  Scheduler scheduler({.rows_max = 1024, .sequences_max = 64}, CostModel());
  for (int i = 0; i < 20; ++i) {
    scheduler.observe({.decode_rows = 8}, 5.0);
    scheduler.observe({.decode_rows = 8, .drafted_rows = 8}, 5.0 + 8 * 0.1);
    scheduler.observe_drafts(8, 1, 1.0);
  }
  const std::vector<double> one = {0.8}, all(8, 0.8);  // a token costs 0.625 ms
  EXPECT_NEAR(scheduler.step_gain_ms(one, 1, 8), 0.8 * 0.625 - 0.1 - 1.0, 0.02);
  EXPECT_NEAR(scheduler.step_gain_ms(all, 2, 8), 8 * (0.64 * 0.625 - 0.1) - 1.0, 0.1);
  EXPECT_NEAR(scheduler.draft_cost_tokens(8), (0.1 + 1.0 / 8) / 0.625, 0.02);
}

/// Two tenants have prompts; the one whose drafts were wrong waits.
TEST(SchedulerDrafts, ThatWereWrongCountAsTimeOfTheirTenant) {
  const auto first_of = [](uint64_t tenant) {
    Scheduler scheduler({.rows_max = 68, .sequences_max = 4}, CostModel());
    const std::vector<SequenceView> views = {prompt_of(1), prompt_of(2)};
    const auto picked = [&] {
      return scheduler.next(views, {.pages = 9}, 0.0).rows.at(0).sequence;
    };
    EXPECT_EQ(picked(), 0);
    EXPECT_EQ(picked(), 1);  // they are even
    scheduler.charge_rejected(tenant, Proposer::model, 100);
    return picked();
  };
  EXPECT_EQ(first_of(1), 1);
  EXPECT_EQ(first_of(2), 0);
}

/// Rows that seemed too expensive are tried again after a few hundred tokens, and then seen to be
/// cheap.
TEST(SchedulerDrafts, AreTriedAgainAfterTheySeemedTooExpensive) {
  Scheduler scheduler({.rows_max = 1024, .sequences_max = 4}, CostModel());
  for (int i = 0; i < 20; ++i) {
    scheduler.observe({.decode_rows = 1}, 4.58);
    scheduler.observe({.decode_rows = 1, .drafted_rows = 1}, 4.58 + 5.0);
  }
  const std::vector<SequenceView> views = {drafting(1, 0.5)};
  const auto rows = [&] { return scheduler.next(views, {.pages = 9}, 0.0).rows.at(0).rows; };
  int passes = 0;
  for (; rows() == 1 && passes < 10000; ++passes) scheduler.observe({.decode_rows = 1}, 4.58);
  EXPECT_GE(passes, 100);
  EXPECT_LE(passes, 1000);
  scheduler.observe({.decode_rows = 1, .drafted_rows = 1}, 4.58 + 0.05);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(rows(), 2) << i;
}

TEST(SchedulerDrafts, LeaveRoomForAPromptThatWaits) {
  Scheduler scheduler({.rows_max = 68, .sequences_max = 4}, CostModel());
  const auto rows = [&](const std::vector<SequenceView>& views) {
    std::vector<int32_t> found;
    for (const ScheduledRows& piece : scheduler.next(views, {.pages = 9}, 0.0).rows)
      found.push_back(piece.rows);
    return found;
  };
  EXPECT_EQ(rows({drafting(50, 0.999), prompt_of(0)}), (std::vector<int32_t>{4, 64}));
  EXPECT_EQ(rows({drafting(50, 0.999)}), std::vector<int32_t>{51});
}

}  // namespace
}  // namespace nibble
