// The scheduler by example; the two pools it counts. Its promises under load:
// scheduler_progress_test.
#include "engine/schedule/scheduler.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/cache/kv_pool.h"
#include "engine/cache/state_pool.h"

namespace nibble {
namespace {

SequenceView waiting(int32_t prompt, int32_t tokens_max) {
  return {.phase = Phase::waiting, .prompt_size = prompt, .tokens_max = tokens_max};
}
SequenceView prefilling(int32_t prompt, int32_t cached) {
  const int32_t pages = KvPool::pages_for(prompt);
  return {.phase = Phase::prefill,
          .prompt_size = prompt,
          .cached = cached,
          .tokens_max = prompt,
          .pages_held = pages,
          .pages_private = pages};
}
/// Holds pages for `cached` tokens and no more.
SequenceView decoding(int32_t cached, int32_t tokens_max = 2000) {
  const int32_t pages = KvPool::pages_for(cached);
  return {.phase = Phase::decode,
          .prompt_size = 1,
          .cached = cached,
          .tokens_max = tokens_max,
          .pages_held = pages,
          .pages_private = pages};
}
SequenceView swapped(int32_t cached, int32_t tokens_max = 2000) {
  SequenceView s = decoding(cached, tokens_max);
  s.phase = Phase::swapped;
  s.pages_held = 0;
  return s;
}
SequenceView with_priority(SequenceView s, int32_t priority) {
  s.priority = priority;
  return s;
}

Schedule next(const std::vector<SequenceView>& views, const FreeResources& free,
              const SchedulerLimits& limits = {.rows_max = 2048, .sequences_max = 8}) {
  return Scheduler(limits, CostModel()).next(views, free, 0.0);
}

using Indices = std::vector<int32_t>;

Indices who(const std::vector<Placement>& placements) {
  Indices indices;
  for (const Placement& place : placements) indices.push_back(place.sequence);
  return indices;
}

TEST(Scheduler, DecodesFirstThenPrompts) {
  const std::vector<SequenceView> views = {prefilling(300, 128), decoding(5), waiting(10, 20),
                                           decoding(70)};
  const Schedule s = next(views, {.pages = 10, .state_slots = 10});
  ASSERT_EQ(s.rows.size(), 4U);
  EXPECT_EQ(s.rows[0].sequence, 1);
  EXPECT_EQ(s.rows[0].arithmetic, Arithmetic::generation);
  EXPECT_EQ(s.rows[1].sequence, 3);
  EXPECT_EQ(s.rows[2].sequence, 2);  // the shorter one
  EXPECT_EQ(s.rows[2].rows, 10);
  EXPECT_EQ(s.rows[2].arithmetic, Arithmetic::prompt);
  EXPECT_EQ(s.rows[3].sequence, 0);
  EXPECT_EQ(s.rows[3].rows, 172);
  EXPECT_EQ(who(s.admitted), Indices{2});
}

TEST(Scheduler, TheEncoderHasWhatThePassLeaves) {
  const Scheduler scheduler({.rows_max = 2048, .sequences_max = 8}, CostModel());
  const double pass_ms = CostModel().ms({.decode_rows = 2});
  EXPECT_EQ(scheduler.encoder_ms({.decode_rows = 2}, 2), 75.0 - pass_ms);
  EXPECT_EQ(scheduler.encoder_ms({}, 0), 250.0);
  EXPECT_EQ(scheduler.encoder_ms({}, 1), 75.0);  // it sat the pass out
  PassShape full;
  full.add_piece(0, 8192);
  EXPECT_EQ(scheduler.encoder_ms(full, 0), 25.0);
  EXPECT_EQ(scheduler.encoder_ms(full, 1), 7.5);
}

/// The tenant of a prompt that waits for the encoder owes the encoder's time to the other.
TEST(Scheduler, ChargesTheEncodersTime) {
  Scheduler scheduler({.rows_max = 72, .sequences_max = 8}, CostModel());
  std::vector<SequenceView> views = {prefilling(640, 0), prefilling(640, 0)};
  views[0].prompt_ready = 0;
  views[1].tenant = 1;
  const auto goes_on = [&] { return scheduler.next(views, {.pages = 9}, 0.0).rows.at(0).sequence; };
  EXPECT_EQ(goes_on(), 1);
  scheduler.charge_encoder(0, 1000.0);
  views[0].prompt_ready = 640;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(goes_on(), 1);
}

TEST(Scheduler, CutsPromptsOnlyAtMultiplesOf64) {
  const std::vector<SequenceView> views = {decoding(5), prefilling(1000, 64)};
  const auto rows = [&](SchedulerLimits limits) { return next(views, {}, limits).rows[1].rows; };
  EXPECT_EQ(rows({.rows_max = 200, .sequences_max = 8}), 192);  // 199 rounded down
  EXPECT_EQ(rows({.rows_max = 2048, .sequences_max = 8, .chunk_tokens_max = 100}), 128);
  EXPECT_EQ(rows({.rows_max = 2048, .sequences_max = 8, .chunk_tokens_max = 1}), 64);
  EXPECT_EQ(rows({.rows_max = 2048, .sequences_max = 8, .step_ms = 36.0}), 320);
  EXPECT_EQ(rows({.rows_max = 2048, .sequences_max = 8, .step_ms = 200.0}), 936);
}

TEST(Scheduler, ReservesThePromptAndSomeGrowthOrNothing) {
  const SchedulerLimits limits{.rows_max = 256, .sequences_max = 2, .reserve_tokens = 100};
  const std::vector<SequenceView> views = {waiting(1000, 9000), waiting(10, 10)};
  const auto admitted = [&](const FreeResources& free) {
    return who(next(views, free, limits).admitted);
  };
  EXPECT_EQ(admitted({.pages = 17, .state_slots = 4}), Indices{1});  // 18 needed: overtaken
  EXPECT_EQ(admitted({.pages = 18, .state_slots = 4}), Indices{0});
  EXPECT_EQ(admitted({.pages = 20, .state_slots = 4}), (Indices{0, 1}));
  EXPECT_EQ(admitted({.pages = 20, .state_slots = 1}), Indices{0});
  const std::vector<SequenceView> busy = {decoding(3), decoding(3), waiting(1, 1)};
  EXPECT_TRUE(next(busy, {.pages = 20, .state_slots = 1}, limits).admitted.empty());
}

TEST(Scheduler, AHeadThatWaitsLongIsNotOvertaken) {
  Scheduler scheduler({.rows_max = 256, .sequences_max = 4}, CostModel());
  const std::vector<SequenceView> views = {decoding(3, 64), waiting(1000, 1000), waiting(10, 10)};
  const FreeResources free{.pages = 10, .state_slots = 4};
  EXPECT_EQ(who(scheduler.next(views, free, 0.0).admitted), Indices{2});
  EXPECT_EQ(who(scheduler.next(views, free, 1999.0).admitted), Indices{2});
  EXPECT_TRUE(scheduler.next(views, free, 2000.0).admitted.empty());
  EXPECT_EQ(who(scheduler.next(views, {.pages = 18, .state_slots = 4}, 2001.0).admitted),
            (Indices{1, 2}));
}

TEST(Scheduler, APrefixHitNeedsOnlyWhatItLacks) {
  SequenceView hit = waiting(1000, 1000);
  hit.cached = 960;
  hit.pages_held = 15;
  EXPECT_EQ(who(next({hit}, {.pages = 1, .state_slots = 1}).admitted), Indices{0});
  EXPECT_EQ(next({hit}, {.pages = 1, .state_slots = 1}).rows[0].rows, 40);
  EXPECT_TRUE(next({hit}, {.pages = 0, .state_slots = 1}).admitted.empty());
}

TEST(Scheduler, GrowsTheOldestAndSwapsOutTheOneWithMostToDo) {
  const std::vector<SequenceView> views = {decoding(128), decoding(70, 500), decoding(70, 900),
                                           decoding(128)};
  const Schedule enough = next(views, {.pages = 2});
  EXPECT_EQ(enough.rows.size(), 4U);
  const Schedule s = next(views, {.host_pages = 9, .host_slots = 1});
  EXPECT_EQ(s.swapped_out, Indices{3});
  ASSERT_EQ(s.rows.size(), 3U);
  EXPECT_EQ(s.rows[0].sequence, 0);
  const Schedule full_host = next(views, {});
  EXPECT_TRUE(full_host.swapped_out.empty());
  EXPECT_EQ(full_host.rows.size(), 2U);  // those with room in their last page
}

TEST(Scheduler, WhenNobodyCanAdvanceTheOldestTakesFromTheOthers) {
  const Schedule s = next({decoding(128), decoding(64), decoding(64)}, {});
  EXPECT_EQ(s.swapped_out, Indices{2});
  ASSERT_EQ(s.rows.size(), 1U);
  EXPECT_EQ(s.rows[0].sequence, 0);
}

TEST(Scheduler, SparesWhatWasSwappedOutTwiceJustNow) {
  std::vector<SequenceView> views = {decoding(64), decoding(70, 500), decoding(70, 900)};
  const FreeResources free{.host_pages = 9, .host_slots = 1};
  views[2].times_swapped = 1;
  EXPECT_EQ(next(views, free).swapped_out, Indices{2});
  views[2].times_swapped = 2;
  EXPECT_EQ(next(views, free).swapped_out, Indices{1});
}

TEST(Scheduler, WhoWasSwappedOutComesBackBeforeOthersStart) {
  const std::vector<SequenceView> views = {decoding(3, 64), waiting(10, 10), swapped(640)};
  EXPECT_TRUE(next(views, {.pages = 17, .state_slots = 1}).admitted.empty());
  const Schedule s = next(views, {.pages = 18, .state_slots = 1});
  EXPECT_EQ(who(s.resumed), Indices{2});
  EXPECT_EQ(s.resumed[0].pages, 18);  // 640 tokens and 512 more
  ASSERT_EQ(s.rows.size(), 2U);
  EXPECT_EQ(s.rows[1].arithmetic, Arithmetic::generation);
  EXPECT_EQ(who(next(views, {.pages = 20, .state_slots = 2}).admitted), Indices{1});
}

TEST(Scheduler, BetterPrioritiesGoFirstAndMayTakeASeat) {
  const SchedulerLimits limits{.rows_max = 256, .sequences_max = 1};
  const std::vector<SequenceView> views = {decoding(70), waiting(10, 10),
                                           with_priority(waiting(10, 10), -1)};
  const FreeResources free{.pages = 20, .state_slots = 1, .host_pages = 9, .host_slots = 1};
  const Schedule s = next(views, free, limits);
  EXPECT_EQ(s.swapped_out, Indices{0});
  EXPECT_EQ(who(s.admitted), Indices{2});
  ASSERT_EQ(s.rows.size(), 1U);
  EXPECT_EQ(s.rows[0].sequence, 2);
  const Schedule full_host = next(views, {.pages = 20, .state_slots = 1}, limits);
  EXPECT_TRUE(full_host.swapped_out.empty() && full_host.admitted.empty());
  EXPECT_EQ(full_host.rows.size(), 1U);
  const std::vector<SequenceView> free_seat = {waiting(10, 10), with_priority(waiting(10, 10), -1)};
  EXPECT_EQ(who(next(free_seat, free, limits).admitted), Indices{1});
}

TEST(Scheduler, OnlyABetterPriorityTakesTheRoomOfOneThatRuns) {
  SequenceView running = decoding(320);
  const FreeResources free{.pages = 5, .state_slots = 3, .host_pages = 30, .host_slots = 3};
  const auto swapped_out = [&](int32_t priority) {
    const Schedule s = next({with_priority(waiting(640, 640), priority), running}, free);
    EXPECT_EQ(s.admitted.size(), s.swapped_out.size());
    return s.swapped_out;
  };
  EXPECT_EQ(swapped_out(1), Indices{});
  EXPECT_EQ(swapped_out(0), Indices{});
  EXPECT_EQ(swapped_out(-1), Indices{1});
}

TEST(Scheduler, TenantsWithFewerRunningStartFirst) {
  std::vector<SequenceView> views = {decoding(3), waiting(10, 10), waiting(10, 10),
                                     waiting(10, 10)};
  views[3].tenant = 7;
  const SchedulerLimits limits{.rows_max = 256, .sequences_max = 2};
  EXPECT_EQ(who(next(views, {.pages = 99, .state_slots = 9}, limits).admitted), Indices{3});
  // Two of a tenant of weight 4 are as one half of a tenant of weight 1.
  for (int i = 0; i < 3; ++i) views[static_cast<size_t>(i)].weight = 4.0;
  views.push_back(decoding(3));
  views.back().tenant = 7;
  const SchedulerLimits three{.rows_max = 256, .sequences_max = 3};
  EXPECT_EQ(who(next(views, {.pages = 99, .state_slots = 9}, three).admitted), Indices{1});
}

/// The newest of the tenant with most running gives its seat to another tenant's first.
TEST(Scheduler, ATenantWithNobodyRunningTakesASeatOfTheOneWithMost) {
  const auto of = [](uint64_t tenant, SequenceView s) {
    s.tenant = tenant;
    return s;
  };
  const SchedulerLimits limits{.rows_max = 2048, .sequences_max = 3};
  const FreeResources free{.pages = 100, .state_slots = 0, .host_pages = 100, .host_slots = 8};
  const auto at = [&](const std::vector<SequenceView>& views, double now_ms) {
    return Scheduler(limits, CostModel()).next(views, free, now_ms);
  };
  std::vector<SequenceView> views = {of(1, decoding(70)), of(1, decoding(70)), of(1, decoding(70)),
                                     of(1, waiting(10, 20)), of(2, waiting(10, 20))};
  EXPECT_TRUE(at(views, 100.0).swapped_out.empty());  // a seat may get free by itself
  const Schedule s = at(views, 300.0);
  EXPECT_EQ(s.swapped_out, Indices{2});
  EXPECT_EQ(who(s.admitted), Indices{4});
  // Whoever has one running waits, and so does everybody whose others have no more than one.
  views[2] = of(2, decoding(70));
  EXPECT_TRUE(at(views, 300.0).swapped_out.empty());
  views[0] = of(3, decoding(70));
  views[4].tenant = 4;
  EXPECT_TRUE(at(views, 300.0).swapped_out.empty());
  // The share counts, not the number, however small it is.
  views[0] = of(1, decoding(70));
  views[0].weight = views[1].weight = 100.0;
  views[2] = of(1, decoding(70));
  views[2].weight = 100.0;
  EXPECT_EQ(at(views, 300.0).swapped_out, Indices{2});
  // Better priorities, those that gave way twice just now, and a full host are let be.
  views[2].priority = -1;
  EXPECT_EQ(at(views, 300.0).swapped_out, Indices{1});
  views[1].times_swapped = 2;
  EXPECT_EQ(at(views, 300.0).swapped_out, Indices{0});
  views[0].times_swapped = 2;
  EXPECT_TRUE(at(views, 300.0).swapped_out.empty());
  EXPECT_EQ(at(views, 10'300.0).swapped_out, Indices{1});
  EXPECT_TRUE(Scheduler(limits, CostModel())
                  .next(views, {.pages = 100, .host_pages = 100}, 10'300.0)
                  .swapped_out.empty());
}

TEST(Scheduler, AtMostTwoLongPromptsAtOnce) {
  const std::vector<SequenceView> views = {prefilling(40000, 0), prefilling(40000, 6400),
                                           waiting(40000, 40000), waiting(100, 100)};
  EXPECT_EQ(who(next(views, {.pages = 9999, .state_slots = 9}).admitted), Indices{3});
  EXPECT_EQ(who(next({views[0], views[2]}, {.pages = 9999, .state_slots = 9}).admitted),
            Indices{1});
}

TEST(Scheduler, DearPrefillTakesTurnsWithDecoding) {
  // A pass with prefill costs 10 + 64 x 1 ms at least: three passes of decoding pay for it.
  const CostModel cost({.pass = 4.0, .decode_row = 1.0, .prefill = 10.0, .prefill_token = 1.0});
  Scheduler scheduler({.rows_max = 256, .sequences_max = 4, .step_ms = 25.0}, cost);
  const std::vector<SequenceView> views = {decoding(3), prefilling(500, 0)};
  Indices prefill_rows;
  for (int pass = 0; pass < 9; ++pass) {
    const Schedule& s = scheduler.next(views, {}, 0.0);
    prefill_rows.push_back(s.rows.size() == 2 ? s.rows[1].rows : 0);
  }
  EXPECT_EQ(prefill_rows, (Indices{0, 0, 0, 64, 0, 0, 0, 64, 0}));
}

TEST(Scheduler, PredictsTheFirstToken) {
  const Scheduler scheduler({.rows_max = 2048, .sequences_max = 8}, CostModel());
  const double alone = scheduler.first_token_ms({}, 1000, 100.0);
  const double cost = scheduler.cost().piece_ms(0, 1000);
  EXPECT_GT(alone, cost + 14.5);
  EXPECT_LT(alone, 1.1 * cost + 20.0);
  const std::vector<SequenceView> busy = {waiting(1000, 1100), decoding(10)};
  EXPECT_GT(scheduler.first_token_ms(busy, 1000, 100.0), 2.0 * alone);
  // All eight seats are taken: an answer of 400 tokens must end first, of eight that run.
  const std::vector<SequenceView> full(8, decoding(10));
  const double pass_ms = scheduler.cost().ms({.decode_rows = 8});
  EXPECT_NEAR(
      scheduler.first_token_ms(full, 1000, 400.0) - scheduler.first_token_ms(full, 1000, 0.0),
      400.0 * pass_ms / 8.0, 1e-6);
}

TEST(Scheduler, PromptsGetATenthOfAPassThatHasNoTimeLeft) {
  const CostModel cost({.pass = 40.0, .decode_row = 1.0, .prefill = 10.0, .prefill_token = 1.0});
  const Scheduler scheduler({.rows_max = 256, .sequences_max = 4, .step_ms = 25.0}, cost);
  const std::vector<SequenceView> busy = {decoding(10)};
  EXPECT_NEAR(scheduler.first_token_ms(busy, 64, 0.0),
              cost.ms({.decode_rows = 1}) + 10.0 + 10.0 * cost.piece_ms(0, 64), 1e-6);
}

TEST(Scheduler, TheOnlyRunningSequenceKeepsThePageThatItWillGrowInto) {
  const std::vector<SequenceView> views = {decoding(10), waiting(64, 64)};
  EXPECT_TRUE(next(views, {.pages = 1, .state_slots = 1}).admitted.empty());
  EXPECT_EQ(who(next(views, {.pages = 2, .state_slots = 1}).admitted), Indices{1});
}

TEST(KvPool, GivesEachPageOnce) {
  KvPool pool(10);
  const auto a = pool.allocate(6);
  ASSERT_TRUE(a);
  EXPECT_FALSE(pool.allocate(5));
  const auto b = pool.allocate(4);
  ASSERT_TRUE(b);
  EXPECT_EQ(pool.free_count(), 0);
  std::vector<int32_t> all = *a;
  all.insert(all.end(), b->begin(), b->end());
  pool.check_integrity(all);
  pool.release(*a);
  pool.check_integrity(*b);
  EXPECT_EQ(pool.free_count(), 6);
  EXPECT_EQ(KvPool::pages_for(0), 0);
  EXPECT_EQ(KvPool::pages_for(64), 1);
  EXPECT_EQ(KvPool::pages_for(65), 2);
}

TEST(KvPoolDeathTest, NoticesLeaksAndDoubleRelease) {
  KvPool pool(4);
  const auto pages = pool.allocate(2);
  EXPECT_DEATH(pool.check_integrity({}), "has 0 owners");
  pool.release(*pages);
  EXPECT_DEATH(pool.release(*pages), "is free already");
  EXPECT_DEATH(pool.check_integrity(*pages), "used and not taken");
}

TEST(StatePoolDeathTest, NoticesLeaksAndDoubleRelease) {
  StatePool pool(2);
  const auto a = pool.allocate();
  const auto b = pool.allocate();
  EXPECT_FALSE(pool.allocate());
  EXPECT_NE(*a, *b);
  const std::vector<int32_t> both = {*a, *b};
  pool.check_integrity(both);
  pool.release(*a);
  EXPECT_DEATH(pool.check_integrity(both), "used and not taken");
  EXPECT_DEATH(pool.check_integrity({}), "has 0 owners");
  EXPECT_DEATH(pool.release(*a), "is free already");
}

}  // namespace
}  // namespace nibble
