// Parts that end in a failure of the card, which here is nobody's: what is reported, and that
// nothing follows.
#include "backend/cuda/checks/part_runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace nibble::checks {
namespace {

Result<void> lives() { return {}; }
Result<void> is_lost() { return make_error(ErrorCode::io, {.what = "card 0 is lost"}); }

void two_checks(Tally& tally) {
  tally.check(true, "one", 0.25);
  tally.check(false, "another", 0.5);
}

struct Told {
  std::vector<CheckedPart> parts;
  Result<void> outcome;
};
Told told_of(const std::vector<Part>& parts, const std::function<Result<void>()>& alive) {
  Told told;
  told.outcome =
      run_parts(parts, alive, [&](const CheckedPart& part) { told.parts.push_back(part); });
  return told;
}

TEST(PartRunner, TellsOfEveryPart) {
  const Told told = told_of({{"a", "native", two_checks}, {"b", "both", two_checks}}, lives);
  EXPECT_TRUE(told.outcome.ok());
  ASSERT_EQ(told.parts.size(), 2U);
  EXPECT_EQ(told.parts[1].name, "b");
  EXPECT_EQ(told.parts[1].ran, "both");
  EXPECT_EQ(told.parts[1].passed, 1);
  EXPECT_EQ(told.parts[1].failed, 1);
  EXPECT_EQ(told.parts[1].worst, 0.5);
  EXPECT_EQ(told.parts[1].failures, std::vector<std::string>{"another"});
}

TEST(PartRunner, ACardThatFailsWithinACheckEndsTheParts) {
  const auto breaks = [](Tally& tally) {
    two_checks(tally);
    throw CardFailure("linear: an illegal memory access was encountered");
  };
  const Told told = told_of({{"a", "native", breaks}, {"b", "both", two_checks}}, lives);
  ASSERT_FALSE(told.outcome.ok());
  EXPECT_EQ(told.outcome.error().code, ErrorCode::io);
  ASSERT_EQ(told.parts.size(), 1U);
  const CheckedPart& part = told.parts.front();
  EXPECT_EQ(part.passed, 1);
  EXPECT_EQ(part.failed, 2);
  EXPECT_TRUE(std::isnan(part.worst));
  ASSERT_EQ(part.failures.size(), 2U);
  EXPECT_EQ(part.failures[0],
            "the card failed: found linear: an illegal memory access was encountered");
  EXPECT_EQ(part.failures[1], "another");
}

TEST(PartRunner, ACardThatIsLostUnnoticedIsTold) {
  const auto many = [](Tally& tally) {
    for (size_t i = 0; i < Tally::kFailuresMax; ++i) tally.check(false, "one of many", 1.0);
  };
  const Told told = told_of({{"a", "native", many}, {"b", "both", two_checks}}, is_lost);
  ASSERT_FALSE(told.outcome.ok());
  ASSERT_EQ(told.parts.size(), 1U);
  EXPECT_EQ(told.parts.front().failures.size(), Tally::kFailuresMax);
  EXPECT_EQ(told.parts.front().failures.front(), "card 0 is lost");
}

}  // namespace
}  // namespace nibble::checks
