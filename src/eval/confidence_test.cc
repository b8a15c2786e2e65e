// Closed values: scipy.stats.binomtest(k, n).proportion_ci(method="wilson") and, for pairs, its
// exact interval and p-value. tests/cli/eval_test.py compares many more with scipy itself.
#include "eval/confidence.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(Confidence, WilsonIntervals) {
  struct Row {
    int64_t successes, trials;
    double low, high;
  };
  constexpr Row kRows[] = {{0, 0, 0.0, 1.0},
                           {0, 10, 0.0, 0.27753279986288926},
                           {10, 10, 0.7224672001371109, 1.0},
                           {7, 10, 0.39677814746114526, 0.892208732593699},
                           {95, 100, 0.8882495307680809, 0.978456320845632},
                           {3128, 3132, 0.9967205967892864, 0.9995032369165325}};
  for (const Row& row : kRows) {
    const Interval found = wilson_interval(row.successes, row.trials);
    EXPECT_NEAR(found.low, row.low, 1e-12) << row.successes << " of " << row.trials;
    EXPECT_NEAR(found.high, row.high, 1e-12) << row.successes << " of " << row.trials;
  }
}

TEST(Confidence, PairedDifferences) {
  struct Row {
    PairedCounts counts;
    double delta, low, high, p_value;
    bool shown;
  };
  constexpr Row kRows[] = {
      {{0, 0, 0}, 0.0, -1.0, 1.0, 1.0, false},
      {{10, 0, 0}, 0.0, 0.0, 0.0, 1.0, false},
      {{20, 5, 0}, 0.25, -0.010911875052490722, 0.25, 0.0625, false},
      {{20, 6, 0}, 0.3, 0.024445124136059704, 0.3, 0.03125, true},
      {{300, 12, 25},
       -0.043333333333333335,
       -0.07889913348049347,
       -0.0005295234000006221,
       0.04703102743951604,
       true},
      {{1, 1, 0}, 1.0, -0.95, 1.0, 1.0, false},
      {{100, 40, 40}, 0.0, -0.1823233866161452, 0.1823233866161452, 1.0, false}};
  for (const Row& row : kRows) {
    const PairedDifference found = paired_difference(row.counts);
    EXPECT_NEAR(found.delta, row.delta, 1e-12);
    EXPECT_NEAR(found.interval.low, row.low, 1e-9);
    EXPECT_NEAR(found.interval.high, row.high, 1e-9);
    EXPECT_NEAR(found.p_value, row.p_value, 1e-12);
    EXPECT_EQ(found.shown(), row.shown) << row.counts.gained << " and " << row.counts.lost;
  }
}

}  // namespace
}  // namespace nibble
