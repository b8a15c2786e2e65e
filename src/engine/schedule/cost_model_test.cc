// The cost model by example, learning from wrong priors, and against absurd observations.
#include "engine/schedule/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace nibble {
namespace {

TEST(CostModel, IsTheFormula) {
  const CostModel cost;
  EXPECT_DOUBLE_EQ(cost.ms({.decode_rows = 30}), 4.5 + 30 * 0.08);
  EXPECT_DOUBLE_EQ(cost.ms({.decode_rows = 30, .drafted_rows = 60}), 4.5 + 30 * 0.08 + 60 * 0.05);
  PassShape shape{.decode_rows = 30};
  shape.add_piece(1000, 500);
  shape.add_piece(0, 64);
  const double pieces = cost.piece_ms(1000, 500) + cost.piece_ms(0, 64);
  EXPECT_NEAR(pieces, 0.0604 * 564 + 0.513e-6 * (500.0 * 2500 + 64.0 * 64), 1e-9);
  EXPECT_NEAR(cost.ms(shape), 4.5 + 30 * 0.08 + 10.0 + pieces, 1e-9);
}

TEST(CostModel, RowsWithinIsTheInverseOfPieceMs) {
  const CostModel cost;
  for (const int32_t depth : {0, 64, 8192, 65536, 262144})
    for (const int32_t rows : {1, 64, 1000, 20000}) {
      const int32_t found = cost.rows_within(depth, cost.piece_ms(depth, rows) + 1e-6);
      EXPECT_EQ(found, rows) << depth;
    }
  EXPECT_EQ(cost.rows_within(0, 0.0), 0);
  EXPECT_EQ(cost.rows_within(0, -5.0), 0);
  EXPECT_EQ(cost.rows_within(0, std::nan("")), 0);
  EXPECT_GT(cost.rows_within(0, 1e300), 1000000);
}

PassShape random_pass(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  PassShape shape{.decode_rows = pick(1, 64)};
  if (pick(0, 2) == 0) shape.drafted_rows = pick(1, 5) * shape.decode_rows;
  if (pick(0, 2) == 0)
    for (int piece = 0; piece < pick(1, 3); ++piece)
      shape.add_piece(64 * pick(0, 2000), 64 * pick(1, 16));
  return shape;
}

double largest_error(const CostModel& model, const CostModel& truth) {
  std::mt19937 random(99);
  double largest = 0.0;
  for (int i = 0; i < 300; ++i) {
    const PassShape shape = random_pass(random);
    largest = std::max(largest, std::abs(model.ms(shape) / truth.ms(shape) - 1.0));
  }
  return largest;
}

TEST(CostModel, LearnsFromPriorsWrongByAnyFactor) {
  const CostModel truth;
  for (const double factor : {0.001, 1.0 / 3.0, 3.0, 1000.0}) {
    const CostParameters p;
    CostModel model({p.pass * factor, p.decode_row / factor, p.prefill * factor,
                     p.prefill_token * factor, p.prefill_pair / factor});
    std::mt19937 random(7);
    std::normal_distribution<double> noise(1.0, 0.03);
    for (int i = 0; i < 600; ++i) {
      const PassShape shape = random_pass(random);
      model.observe(shape, truth.ms(shape) * noise(random));
    }
    EXPECT_LT(largest_error(model, truth), 0.05) << factor;
  }
}

TEST(CostModel, HoursOfDecodingDoNotEraseWhatPrefillCosts) {
  const CostModel truth({.prefill = 20.0, .prefill_token = 0.2});
  CostModel model;
  std::mt19937 random(8);
  for (int i = 0; i < 300; ++i) {
    const PassShape shape = random_pass(random);
    model.observe(shape, truth.ms(shape));
  }
  for (int i = 0; i < 100000; ++i) model.observe({.decode_rows = 5}, truth.ms({.decode_rows = 5}));
  EXPECT_LT(largest_error(model, truth), 0.05);
}

TEST(CostModel, OnePassInTwentyMayBeAbsurd) {
  const CostModel truth;
  CostModel model({.pass = 9.0, .decode_row = 0.02, .prefill = 3.0, .prefill_token = 0.15});
  std::mt19937 random(9);
  for (int i = 0; i < 3000; ++i) {
    const PassShape shape = random_pass(random);
    const double ms = truth.ms(shape);
    const double odd = i % 40 == 0 ? 100.0 * ms : 0.01 * ms;
    model.observe(shape, i % 20 == 0 && i > 200 ? odd : ms);
  }
  EXPECT_LT(largest_error(model, truth), 0.10);
}

TEST(CostModel, StaysFiniteAndPositiveWhateverIsObserved) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double times[] = {0.0,   -1.0,   kInfinity, -kInfinity, std::nan(""),
                          1e308, 1e-308, 1e-3,      1.0,        1e9};
  CostModel model;
  std::mt19937 random(10);
  for (int i = 0; i < 20000; ++i) {
    PassShape shape = random_pass(random);
    if (i % 7 == 0) shape = {};
    if (i % 11 == 0) shape.add_piece(2000000000, 2000000000);
    model.observe(shape, times[random() % std::size(times)]);
    const CostParameters& p = model.parameters();
    for (const double value : {p.pass, p.decode_row, p.prefill, p.prefill_token, p.prefill_pair})
      ASSERT_TRUE(std::isfinite(value) && value > 0.0) << i;
  }
}

TEST(CostModel, APassWithoutRowsTeachesNothing) {
  CostModel model;
  model.observe({}, 1000.0);
  EXPECT_EQ(model.ms({.decode_rows = 30}), CostModel().ms({.decode_rows = 30}));
}

TEST(CostModelDeathTest, RefusesAPriorThatIsNoTime) {
  EXPECT_DEATH(CostModel({.pass = 0.0}), "cost prior");
  EXPECT_DEATH(CostModel({.prefill = std::nan("")}), "cost prior");
}

}  // namespace
}  // namespace nibble
