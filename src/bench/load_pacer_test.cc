// Arrivals and the rules of loops, on a clock that the test turns.
#include "bench/load_pacer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace nibble {
namespace {

std::vector<double> intervals(const ArrivalPlan& plan) {
  std::vector<double> times = arrival_times(plan);
  for (size_t i = times.size() - 1; i > 0; --i) times[i] -= times[i - 1];
  return times;
}

double mean(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double variation(const std::vector<double>& values) {
  const double middle = mean(values);
  double squares = 0.0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return std::sqrt(squares / static_cast<double>(values.size())) / middle;
}

TEST(Arrivals, HaveTheRateAndTheSpreadThatWereAskedFor) {
  constexpr int64_t kTasks = 20000;
  // The coefficient of variation of a gamma distribution is 1 / sqrt(shape).
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    const auto gaps = intervals({.tasks = kTasks, .rate = 8.0, .burstiness = burstiness});
    EXPECT_NEAR(mean(gaps), 1.0 / 8.0, 1e-9);
    EXPECT_NEAR(variation(gaps), 1.0 / std::sqrt(burstiness), 0.05 / std::sqrt(burstiness));
  }
  for (const double gap : intervals({.tasks = 10, .rate = 4.0, .burstiness = INFINITY}))
    EXPECT_NEAR(gap, 0.25, 1e-12);
  for (const double time : arrival_times({.tasks = 3})) EXPECT_EQ(time, 0.0);
}

TEST(Arrivals, ArePoissonAtBurstinessOne) {
  // The share 1/e of exponential intervals is longer than the mean.
  const auto gaps = intervals({.tasks = 20000, .rate = 5.0, .seed = 3});
  const auto longer = std::ranges::count_if(gaps, [](double gap) { return gap > 0.2; });
  EXPECT_NEAR(static_cast<double>(longer) / 20000.0, std::exp(-1.0), 0.01);
}

TEST(Arrivals, DependOnTheSeedAlone) {
  const ArrivalPlan plan{.tasks = 50, .rate = 2.0, .seed = 7};
  EXPECT_EQ(arrival_times(plan), arrival_times(plan));
  EXPECT_NE(arrival_times(plan), arrival_times({.tasks = 50, .rate = 2.0, .seed = 8}));
}

TEST(Pacer, AClosedLoopKeepsItsClientsBusyAndStops) {
  LoadPacer pacer({.clients = 2, .tasks = 5});
  auto running = pacer.begin();
  ASSERT_EQ(running.size(), 2u);
  double now = 0.0;
  int64_t ended = 0;
  while (!running.empty()) {
    ASSERT_LE(running.size(), 2u);
    const Turn turn = running.front();
    running.erase(running.begin());
    now += 1.0;
    for (const Turn& next : pacer.ended(turn, TurnEnd::answered, now)) {
      EXPECT_EQ(next.due_seconds, now);
      running.push_back(next);
    }
    ++ended;
  }
  EXPECT_EQ(ended, 5);
  EXPECT_EQ(pacer.tasks_completed(), 5);
  EXPECT_TRUE(pacer.done());
}

TEST(Pacer, AFailureIsFollowedByAPause) {
  LoadPacer pacer({.clients = 1, .tasks = 2, .turns = 3, .error_pause_seconds = 0.5});
  const auto first = pacer.begin();
  const auto next = pacer.ended(first[0], TurnEnd::failed, 4.0);
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].task, 1);  // the rest of the conversation is left out
  EXPECT_EQ(next[0].turn, 0);
  EXPECT_DOUBLE_EQ(next[0].due_seconds, 4.5);
}

TEST(Pacer, TurnsFollowTheirAnswers) {
  LoadPacer pacer({.arrivals = {0.5, 2.0}, .turns = 2, .pause_seconds = 3.0});
  const auto first = pacer.begin();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[1].due_seconds, 2.0);
  const auto second = pacer.ended(first[0], TurnEnd::answered, 1.0);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].task, 0);
  EXPECT_EQ(second[0].turn, 1);
  EXPECT_EQ(second[0].due_seconds, 4.0);
  EXPECT_TRUE(pacer.ended(second[0], TurnEnd::answered, 5.0).empty());
  EXPECT_FALSE(pacer.done());
  EXPECT_TRUE(pacer.ended(first[1], TurnEnd::failed, 6.0).empty());
  EXPECT_TRUE(pacer.done());
}

TEST(Pacer, AnEndByTimeWaitsForItsTasksAndForOutliers) {
  LoadPacer pacer({.clients = 1, .tasks = 2, .seconds = 10.0});
  auto turn = pacer.begin()[0];
  EXPECT_FALSE(pacer.time_is_up(11.0));  // no task is complete
  turn = pacer.ended(turn, TurnEnd::answered, 11.0).at(0);
  EXPECT_FALSE(pacer.time_is_up(11.0));
  pacer.hold();
  turn = pacer.ended(turn, TurnEnd::answered, 12.0).at(0);
  EXPECT_FALSE(pacer.time_is_up(12.0));
  pacer.release();
  EXPECT_TRUE(pacer.time_is_up(12.0));
}

}  // namespace
}  // namespace nibble
