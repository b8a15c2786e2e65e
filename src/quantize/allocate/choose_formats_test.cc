// The choice under a budget, against all choices there are.
#include "quantize/allocate/choose_formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace nibble {
namespace {

AllocationGroup group_of(std::vector<AllocationChoice> choices) {
  return {.name = "g", .choices = std::move(choices)};
}

std::vector<AllocationGroup> random_groups(uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int64_t> bytes(1, 100);
  std::uniform_real_distribution<double> loss(0, 1);
  std::vector<AllocationGroup> groups;
  for (int i = 0; i < count; ++i) {
    const int64_t least = bytes(random), middle = least + bytes(random);
    groups.push_back(group_of({{AllocatedFormat::nvfp4, least, 0.5 + loss(random)},
                               {AllocatedFormat::fp8, middle, loss(random)},
                               {AllocatedFormat::unquantized, middle + bytes(random), 0}}));
  }
  return groups;
}

/// The least loss of all choices within the budget.
double exact_loss(const std::vector<AllocationGroup>& groups, int64_t bytes_max) {
  double best = 1e300;
  size_t all = 1;
  for (const AllocationGroup& group : groups) all *= group.choices.size();
  for (size_t code = 0; code < all; ++code) {
    size_t rest = code;
    AllocationPoint sum;
    for (const AllocationGroup& group : groups) {
      const AllocationChoice& choice = group.choices[rest % group.choices.size()];
      rest /= group.choices.size();
      sum.bytes += choice.bytes;
      sum.loss += choice.loss;
    }
    if (sum.bytes <= bytes_max) best = std::min(best, sum.loss);
  }
  return best;
}

AllocationPoint sum_of(const std::vector<AllocationGroup>& groups) {
  AllocationPoint sum;
  for (const AllocationGroup& group : groups) {
    sum.bytes += group.choices[group.chosen].bytes;
    sum.loss += group.choices[group.chosen].loss;
  }
  return sum;
}

TEST(ChooseFormats, EveryPointOfTheCurveIsTheBestOfItsSize) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<AllocationGroup> groups = random_groups(seed, 6);
    const std::vector<AllocationPoint> curve = pareto_curve(groups);
    EXPECT_EQ(curve.back().loss, 0);
    for (size_t i = 0; i < curve.size(); ++i) {
      EXPECT_NEAR(curve[i].loss, exact_loss(groups, curve[i].bytes), 1e-12) << seed;
      if (i > 0) {
        EXPECT_GT(curve[i].bytes, curve[i - 1].bytes);
        EXPECT_LT(curve[i].loss, curve[i - 1].loss);
      }
      std::vector<AllocationGroup> chosen = groups;
      const AllocationPoint total = choose_within_bytes(chosen, curve[i].bytes);
      EXPECT_EQ(total.bytes, curve[i].bytes) << seed;
      EXPECT_EQ(sum_of(chosen).bytes, total.bytes);
    }
  }
}

TEST(ChooseFormats, ABudgetIsNeverPassedAndAlmostUsed) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<AllocationGroup> groups = random_groups(seed, 6);
    const int64_t least = choose_smallest(groups).bytes;
    double before = 1e300;
    for (int64_t budget = least; budget < least + 500; budget += 7) {
      const AllocationPoint total = choose_within_bytes(groups, budget);
      EXPECT_LE(total.bytes, budget);
      EXPECT_EQ(total.bytes, sum_of(groups).bytes);
      EXPECT_DOUBLE_EQ(total.loss, sum_of(groups).loss);
      const std::vector<Upgrade> steps = upgrades(groups);
      const double largest_step = std::ranges::max_element(steps, {}, &Upgrade::gain)->gain;
      EXPECT_LE(total.loss, exact_loss(groups, budget) + largest_step) << seed;
      before = std::min(before, total.loss);
    }
    EXPECT_LT(before, choose_smallest(groups).loss);
  }
}

TEST(ChooseFormats, AChoiceAboveTheHullIsSkipped) {
  // The middle choice costs as much as the last and gains less.
  const std::vector<AllocationGroup> groups = {group_of({{AllocatedFormat::nvfp4, 10, 1.0},
                                                         {AllocatedFormat::fp8, 20, 0.9},
                                                         {AllocatedFormat::unquantized, 30, 0.0}})};
  const std::vector<Upgrade> steps = upgrades(groups);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].choice, 2U);
  EXPECT_EQ(steps[0].bytes, 20);
}

TEST(ChooseFormats, AStepThatDoesNotFitLetsOthersGoOn) {
  std::vector<AllocationGroup> groups = {
      group_of({{AllocatedFormat::nvfp4, 10, 100}, {AllocatedFormat::fp8, 60, 0}}),
      group_of({{AllocatedFormat::nvfp4, 10, 2}, {AllocatedFormat::fp8, 20, 0}})};
  const AllocationPoint total = choose_within_bytes(groups, 40);
  EXPECT_EQ(total.bytes, 30);
  EXPECT_EQ(groups[0].chosen, 0U);
  EXPECT_EQ(groups[1].chosen, 1U);
}

TEST(ChooseFormats, ALossIsMetWithTheFewestSteps) {
  std::vector<AllocationGroup> groups = random_groups(3, 6);
  const std::vector<AllocationPoint> curve = pareto_curve(groups);
  for (size_t i = 0; i < curve.size(); ++i) {
    EXPECT_EQ(choose_for_loss(groups, curve[i].loss).bytes, curve[i].bytes);
    if (i > 0) {
      const double above = (curve[i].loss + curve[i - 1].loss) / 2;
      EXPECT_EQ(choose_for_loss(groups, above).bytes, curve[i].bytes);
    }
  }
  EXPECT_EQ(choose_for_loss(groups, 1e9).bytes, curve.front().bytes);
}

TEST(ChooseFormats, EqualOnesGoInTheirOrder) {
  const AllocationGroup same =
      group_of({{AllocatedFormat::nvfp4, 10, 1}, {AllocatedFormat::fp8, 20, 0}});
  std::vector<AllocationGroup> groups = {same, same, same};
  choose_within_bytes(groups, 40);
  EXPECT_EQ(groups[0].chosen, 1U);
  EXPECT_EQ(groups[1].chosen, 0U);
  EXPECT_EQ(groups[2].chosen, 0U);
}

}  // namespace
}  // namespace nibble
