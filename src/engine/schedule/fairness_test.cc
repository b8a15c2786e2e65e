// Nobody starves: the load of docs/scheduling.md with the costs it states, under bars in seconds.
#include <gtest/gtest.h>

#include "engine/testing/fairness_workload.h"

namespace nibble {
namespace {

double worst(const std::vector<double>& values) { return percentile(values, 1.0); }

void expect_bars(const FairnessSetup& setup) {
  const FairnessResult r = FairnessRun(setup).run();
  EXPECT_LE(r.long_first_ms[0], 20000.0) << "60K, seed " << setup.seed;
  EXPECT_LE(r.long_first_ms[1], 120000.0) << "200K, seed " << setup.seed;
  EXPECT_LE(percentile(r.gaps_ms, 0.99), 80.0) << "seed " << setup.seed;
  EXPECT_LE(percentile(r.short_first_ms, 0.95), 12000.0) << "seed " << setup.seed;
  EXPECT_GE(r.short_first_ms.size(), 50U);
}

TEST(Fairness, MeetsTheBarsWhenTheCostIsGiven) {
  for (uint32_t seed = 1; seed <= 10; ++seed) expect_bars({.seed = seed, .measured_ms = 60000.0});
}

CostParameters scaled(double factor) {
  const CostParameters p;
  return {p.pass * factor, p.decode_row * factor, p.prefill * factor, p.prefill_token * factor,
          p.prefill_pair * factor};
}

TEST(Fairness, MeetsTheBarsWhenTheCostIsLearned) {
  for (const double factor : {1.0 / 3.0, 3.0})
    for (uint32_t seed = 1; seed <= 5; ++seed)
      expect_bars({.seed = seed, .measured_ms = 60000.0, .prior = scaled(factor), .noise = 0.02});
  CostParameters crooked;  // each its own way
  crooked.decode_row *= 3.0, crooked.prefill /= 3.0, crooked.prefill_pair *= 3.0;
  expect_bars({.seed = 11, .measured_ms = 60000.0, .prior = crooked, .noise = 0.02});
}

TEST(Fairness, AtSaturationNobodyStarves) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const FairnessResult r =
        FairnessRun({.seed = seed, .output_min = 60, .output_max = 60, .measured_ms = 200000.0})
            .run();
    EXPECT_LE(r.long_first_ms[0], 20000.0);
    EXPECT_LE(r.long_first_ms[1], 125000.0);
    EXPECT_LE(worst(r.short_first_ms), 40000.0);
    EXPECT_LE(percentile(r.gaps_ms, 0.99), 80.0);
  }
}

/// First-token times by tenant of closed-loop clients: `clients[t]` of tenant t.
std::vector<std::vector<double>> first_tokens(const std::vector<int>& clients, int32_t seats) {
  const CostModel truth;
  Scheduler scheduler({.rows_max = 8192, .sequences_max = seats}, CostModel());
  SimulatedEngine engine(scheduler, {.pages = 20000, .state_slots = seats},
                         [&](const PassShape& shape) { return truth.ms(shape); });
  std::vector<std::vector<double>> times(clients.size());
  for (size_t tenant = 0; tenant < clients.size(); ++tenant)
    for (int i = 0; i < clients[tenant]; ++i)
      engine.submit({.prompt = 4000, .output = 60, .tenant = tenant});
  while (engine.now_ms() < 100000.0)
    engine.step(
        [&](const SimulatedSequence& s, double gap) {
          if (s.first_token_ms == s.last_token_ms) times[s.request.tenant].push_back(gap);
        },
        [&](const SimulatedSequence& s) { engine.submit(s.request); });
  return times;
}

TEST(Fairness, ATenantWithManyRequestsDoesNotDelayOneWithFew) {
  for (const int32_t seats : {64, 8}) {
    const auto times = first_tokens({40, 1}, seats);
    EXPECT_LE(worst(times[1]), 3000.0) << seats;
    EXPECT_GE(percentile(times[0], 0.5), 3.0 * worst(times[1]));  // waits for its own
  }
}

}  // namespace
}  // namespace nibble
