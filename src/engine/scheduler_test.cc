// The scheduler by example and by property, and the two pools it counts.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/kv_pool.h"
#include "engine/state_pool.h"

namespace nibble {
namespace {

SequenceView waiting(int32_t prompt, int32_t tokens_max) {
  return {.phase = Phase::waiting, .prompt_size = prompt, .tokens_max = tokens_max};
}
SequenceView prefilling(int32_t prompt, int32_t cached) {
  return {.phase = Phase::prefill, .prompt_size = prompt, .cached = cached, .tokens_max = prompt};
}
SequenceView decoding(int32_t prompt) {
  return {.phase = Phase::decode, .prompt_size = prompt, .cached = prompt, .tokens_max = 999};
}

TEST(Scheduler, DecodesFirstThenPromptsInOrder) {
  const std::vector<SequenceView> views = {prefilling(300, 128), decoding(5), waiting(10, 20),
                                           decoding(70)};
  const Schedule s =
      schedule(views, {.pages = 10, .state_slots = 10}, {.rows_max = 256, .sequences_max = 8});
  ASSERT_EQ(s.rows.size(), 4U);
  EXPECT_EQ(s.rows[0].sequence, 1);
  EXPECT_EQ(s.rows[0].arithmetic, Arithmetic::generation);
  EXPECT_EQ(s.rows[1].sequence, 3);
  EXPECT_EQ(s.rows[2].sequence, 0);
  EXPECT_EQ(s.rows[2].rows, 172);
  EXPECT_EQ(s.rows[2].arithmetic, Arithmetic::prompt);
  EXPECT_EQ(s.rows[3].sequence, 2);
  EXPECT_EQ(s.rows[3].rows, 10);
  EXPECT_EQ(s.admitted, std::vector<int32_t>{2});
}

TEST(Scheduler, CutsPromptsOnlyAtMultiplesOf64) {
  const std::vector<SequenceView> views = {decoding(5), prefilling(1000, 64)};
  const Schedule s = schedule(views, {}, {.rows_max = 200, .sequences_max = 8});
  ASSERT_EQ(s.rows.size(), 2U);
  EXPECT_EQ(s.rows[1].rows, 192);  // 199 rounded down
}

TEST(Scheduler, NobodyOvertakesInTheQueue) {
  const SchedulerLimits limits{.rows_max = 256, .sequences_max = 2};
  const std::vector<SequenceView> views = {waiting(1000, 1200), waiting(10, 10)};
  EXPECT_TRUE(schedule(views, {.pages = 18, .state_slots = 4}, limits).admitted.empty());
  EXPECT_EQ(schedule(views, {.pages = 19, .state_slots = 4}, limits).admitted.size(), 1U);
  EXPECT_EQ(schedule(views, {.pages = 20, .state_slots = 4}, limits).admitted.size(), 2U);
  EXPECT_EQ(schedule(views, {.pages = 20, .state_slots = 1}, limits).admitted.size(), 1U);
  const std::vector<SequenceView> busy = {decoding(3), decoding(3), waiting(1, 1)};
  EXPECT_TRUE(schedule(busy, {.pages = 20, .state_slots = 1}, limits).admitted.empty());
}

TEST(Scheduler, AlwaysMakesProgressWithinItsLimits) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int32_t>(low, high)(random);
    };
    const SchedulerLimits limits{.rows_max = 64 + 8 + pick(0, 200), .sequences_max = 8};
    std::vector<SequenceView> views;
    const int running = pick(0, 8);
    for (int i = 0; i < running; ++i)
      views.push_back(pick(0, 1) ? decoding(9) : prefilling(pick(129, 400), 64 * pick(0, 2)));
    const int queue = pick(running == 0 ? 1 : 0, 4);
    for (int i = 0; i < queue; ++i) views.push_back(waiting(pick(1, 300), 300));
    const FreeResources free{.pages = pick(5, 20), .state_slots = pick(1, 8)};
    const Schedule s = schedule(views, free, limits);
    EXPECT_FALSE(s.rows.empty());
    int32_t rows = 0;
    int32_t pages = 0;
    for (const ScheduledRows& piece : s.rows) {
      rows += piece.rows;
      const SequenceView& view = views[static_cast<size_t>(piece.sequence)];
      EXPECT_GT(piece.rows, 0);
      if (view.phase == Phase::decode) continue;
      const int32_t end = view.cached + piece.rows;
      EXPECT_TRUE(end == view.prompt_size || end % 64 == 0);
    }
    for (const int32_t i : s.admitted)
      pages += KvPool::pages_for(views[static_cast<size_t>(i)].tokens_max);
    EXPECT_LE(rows, limits.rows_max);
    EXPECT_LE(pages, free.pages);
    EXPECT_LE(static_cast<int32_t>(s.admitted.size()), free.state_slots);
    EXPECT_LE(running + static_cast<int>(s.admitted.size()), limits.sequences_max);
  }
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
