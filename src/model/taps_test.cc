// Sums against a loop that is plainly right; the same for every split into batches and threads;
// rows that are no numbers.
#include "model/taps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace nibble {
namespace {

constexpr int64_t kCols = 48, kRows = 37, kStride = 50;

std::vector<float> inputs() {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(kRows * kStride);
  for (float& value : x) value = normal(random);
  return x;
}

TEST(Taps, SumsAreThoseOfTheObviousLoop) {
  const auto x = inputs();
  ThreadPool threads(3);
  InputStatistics all(kCols, SecondMoment::full), blocks(kCols, SecondMoment::blocks),
      diagonal(kCols, SecondMoment::diagonal), none(kCols, SecondMoment::none);
  for (InputStatistics* s : {&all, &blocks, &diagonal, &none})
    s->add(x.data(), kRows, kStride, threads);
  float amax = 0;
  for (int64_t i = 0; i < kCols; ++i)
    for (int64_t j = 0; j < kCols; ++j) {
      double sum = 0;
      for (int64_t t = 0; t < kRows; ++t) {
        sum += static_cast<double>(x[static_cast<size_t>(t * kStride + i)]) *
               static_cast<double>(x[static_cast<size_t>(t * kStride + j)]);
        amax = std::max(amax, std::fabs(x[static_cast<size_t>(t * kStride + i)]));
      }
      ASSERT_EQ(all.product(i, j), sum);
      if (i / 16 == j / 16) {
        ASSERT_EQ(blocks.product(i, j), sum);
      }
      if (i == j) {
        ASSERT_EQ(diagonal.square(i), sum);
      }
    }
  for (const InputStatistics* s : {&all, &blocks, &diagonal, &none}) {
    EXPECT_EQ(s->tokens, kRows);
    EXPECT_EQ(s->amax, amax);
  }
}

TEST(Taps, BatchesAndThreadsLeaveNoTrace) {
  const auto x = inputs();
  for (const auto kind : {SecondMoment::diagonal, SecondMoment::blocks, SecondMoment::full}) {
    ThreadPool one(1), four(4);
    InputStatistics whole(kCols, kind), parts(kCols, kind);
    whole.add(x.data(), kRows, kStride, one);
    for (int64_t t = 0; t < kRows; t += 5)
      parts.add(x.data() + t * kStride, std::min<int64_t>(5, kRows - t), kStride, four);
    EXPECT_EQ(whole.moment, parts.moment);
    EXPECT_EQ(whole.tokens, parts.tokens);
  }
}

TEST(Taps, RowsThatAreNoNumbersAreCountedAndLeftOut) {
  auto x = inputs();
  ThreadPool one(1);
  InputStatistics clean(kCols, SecondMoment::full), dirty(kCols, SecondMoment::full);
  clean.add(x.data() + 2 * kStride, kRows - 2, kStride, one);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  x[kStride + 7] = -std::numeric_limits<float>::infinity();
  dirty.add(x.data(), kRows, kStride, one);
  EXPECT_EQ(dirty.bad_tokens, 2);
  EXPECT_EQ(dirty.tokens, kRows - 2);
  EXPECT_EQ(dirty.moment, clean.moment);
  EXPECT_EQ(dirty.amax, clean.amax);
}

TEST(Taps, TokensCountByTheirWeights) {
  const auto x = inputs();
  ThreadPool threads(3);
  TokenWeights some{.other = 0.25F};  // of every third token a weight of its own
  for (int32_t token = 1; token < 2 * kRows; token += 3) {
    some.tokens.push_back(token);
    some.weights.push_back(static_cast<float>(token) / 8.0F);
  }
  std::vector<int32_t> ids;  // rows of a pass that begins at token 10, every second one
  for (int32_t r = 0; r < kRows; ++r) ids.push_back(2 * r % 20);
  Taps taps;
  taps.want("l", kCols, SecondMoment::full, &some);
  taps.begin_pass(10);
  InputStatistics& seen = *taps.find("l");
  seen.add({.x = x.data(),
            .count = kRows,
            .stride = kStride,
            .first_token = taps.first_token(),
            .ids = ids.data()},
           threads);
  for (int64_t i = 0; i < kCols; i += 5)
    for (int64_t j = i; j < kCols; j += 3) {
      double sum = 0;
      for (int64_t t = 0; t < kRows; ++t) {
        const int64_t token = 10 + 2 * t % 20;
        const double weight = token % 3 == 1 ? static_cast<double>(token) / 8.0 : 0.25;
        sum += weight * static_cast<double>(x[static_cast<size_t>(t * kStride + i)]) *
               static_cast<double>(x[static_cast<size_t>(t * kStride + j)]);
      }
      ASSERT_EQ(seen.product(i, j), sum);
    }
  EXPECT_EQ(seen.tokens, kRows);
}

TEST(Taps, WeightsOfOneAreTheSumsWithoutWeights) {
  const auto x = inputs();
  ThreadPool one(1);
  const TokenWeights ones{.weights = std::vector<float>(kRows, 1.0F)};
  InputStatistics plain(kCols, SecondMoment::full), weighted(kCols, SecondMoment::full);
  weighted.weights = &ones;
  plain.add(x.data(), kRows, kStride, one);
  weighted.add({.x = x.data(), .count = kRows, .stride = kStride}, one);
  EXPECT_EQ(plain.moment, weighted.moment);
}

TEST(Taps, OnlyWhatIsWantedIsFound) {
  Taps taps;
  taps.want("a", 16, SecondMoment::blocks);
  EXPECT_NE(taps.find("a"), nullptr);
  EXPECT_EQ(taps.find("b"), nullptr);
  EXPECT_EQ(taps.bytes(), 16 * 16 * 8);
}

}  // namespace
}  // namespace nibble
