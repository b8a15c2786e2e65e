// Softmax arithmetic against hand-computed values.
#include "eval/divergence.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nibble {
namespace {

TEST(Divergence, LogProbability) {
  const std::vector<float> logits = {0.0F, std::log(3.0F)};  // 1/4, 3/4
  EXPECT_NEAR(log_probability(logits, 0), std::log(0.25), 1e-7);
  EXPECT_NEAR(log_probability(logits, 1), std::log(0.75), 1e-7);
}

TEST(Divergence, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits = {1e4F, 1e4F};
  EXPECT_NEAR(log_probability(logits, 1), std::log(0.5), 1e-9);
}

TEST(Divergence, KlOfTwoCoins) {
  const std::vector<float> p = {0.0F, 0.0F};
  const std::vector<float> q = {0.0F, std::log(3.0F)};
  const double expected = 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75);
  EXPECT_NEAR(kl_divergence(p, q), expected, 1e-7);
  EXPECT_EQ(kl_divergence(q, q), 0.0);
  EXPECT_GT(std::fabs(kl_divergence(q, p) - expected), 1e-3);  // it is not symmetric
}

TEST(Divergence, TopTokenTakesTheLowestOnATie) {
  EXPECT_EQ(top_token(std::vector<float>{1, 5, 5, 2}), 1);
}

TEST(Divergence, SummaryUsesNearestRank) {
  DivergenceCollector collector;
  const std::vector<float> p = {0.0F, 0.0F};
  std::vector<double> values;
  for (int i = 1; i <= 200; ++i) {  // growing divergences, half of them with another top token
    const float step = 0.01F * static_cast<float>(i);
    const std::vector<float> q = i % 2 == 0 ? std::vector{step, 0.0F} : std::vector{0.0F, step};
    values.push_back(kl_divergence(p, q));
    collector.add(p, q);
  }
  const DivergenceSummary summary = collector.summary();
  EXPECT_EQ(summary.positions, 200);
  EXPECT_EQ(summary.kl_median, values[99]);
  EXPECT_EQ(summary.kl_p95, values[189]);
  EXPECT_EQ(summary.kl_p99, values[197]);
  EXPECT_EQ(summary.kl_max, values[199]);
  EXPECT_EQ(summary.top1_agreement, 0.5);
  double mean = 0.0;
  for (const double value : values) mean += value / 200;
  EXPECT_NEAR(summary.kl_mean, mean, 1e-12);
}

TEST(Divergence, NoPositions) { EXPECT_EQ(DivergenceCollector().summary().positions, 0); }

}  // namespace
}  // namespace nibble
