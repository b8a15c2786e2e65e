// Percentiles and summaries: figures that numpy gave (numpy.percentile, numpy.std of 2.4.6).
#include "bench/summary.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(Summary, IsWhatNumpyGives) {
  const std::vector<double> percents = {0, 25, 50, 90, 99, 99.9, 100};
  const Summary summary = summarize({3.5, -1.0, 2.0, 2.0, 10.25, 7.75, 0.5}, percents);
  EXPECT_EQ(summary.count, 7u);
  EXPECT_DOUBLE_EQ(summary.mean, 3.5714285714285716);
  EXPECT_DOUBLE_EQ(summary.median, 2.0);
  EXPECT_DOUBLE_EQ(summary.deviation, 3.7290229611652914);
  const double expected[] = {-1.0, 1.25, 2.0, 8.75, 10.1, 10.235, 10.25};
  for (size_t i = 0; i < percents.size(); ++i)
    EXPECT_DOUBLE_EQ(summary.at(percents[i]), expected[i]) << percents[i];
  EXPECT_DOUBLE_EQ(summary.least, -1.0);
  EXPECT_DOUBLE_EQ(summary.most, 10.25);
}

TEST(Summary, OfOneAndOfNone) {
  const std::vector<double> percents = {99};
  EXPECT_EQ(summarize({4.0}, percents).at(99), 4.0);
  EXPECT_EQ(summarize({4.0}, percents).deviation, 0.0);
  const Summary none = summarize({}, percents);
  EXPECT_EQ(none.count, 0u);
  EXPECT_EQ(none.at(99), 0.0);
}

}  // namespace
}  // namespace nibble
