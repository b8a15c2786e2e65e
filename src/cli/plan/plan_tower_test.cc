// The vision tower in plans: loaded or left out, the parts of a report add up.
#include <gtest/gtest.h>

#include "cli/plan/plan_making.h"

namespace nibble {
namespace {

Arguments plan_flags(std::vector<std::string> words) {
  words.insert(words.begin(), "qwen3.5-4b");
  return parse_arguments(kPlanVerb, words,
                         [](const std::string&) { return std::optional<std::string>(); })
      .value();
}

class PlannedTower : public testing::Test {
 protected:
  PlanReport report(const std::vector<std::string>& words) {
    const Arguments flags = plan_flags(words);
    const PlannedRun run = plan_run(flags, model_, place_.card).value();
    PlanReport made = whole_report(flags, model_, place_, run, {});
    EXPECT_EQ(total_bytes(made.weights), made.plan.weight_bytes);
    return made;
  }

  Terminal terminal_;
  PlanModel model_ = read_plan_model(plan_flags({}), "qwen3.5-4b", {}, terminal_).value();
  Place place_ = {.kind = Place::Kind::card, .card = find_card("h200").value()};
};

TEST_F(PlannedTower, IsLoadedOnACardWhereItsMemoryIsAskedFor) {
  ASSERT_TRUE(model_.vision);
  const PlanReport left_out = report({});
  EXPECT_GT(left_out.others.vision_bytes, 0);
  EXPECT_EQ(left_out.plan.media_bytes, 0);
  EXPECT_NE(plan_text(left_out).find("; --max-image-tokens loads it"), std::string::npos);
  const PlanReport loaded = report({"--max-image-tokens", "1024"});
  EXPECT_EQ(loaded.others.vision_bytes, 0);
  EXPECT_GT(loaded.plan.media_bytes, 0);
  EXPECT_GT(loaded.plan.weight_bytes, left_out.plan.weight_bytes);
}

TEST_F(PlannedTower, IsLeftOutWhereARequestMayHaveNoMedia) {
  const auto with = [&](const char* limits) {
    return report({"--max-image-tokens", "1024", "--limit-mm-per-prompt", limits});
  };
  for (const char* one : {"image=0", "video=0"}) EXPECT_GT(with(one).plan.media_bytes, 0) << one;
  const PlanReport neither = with("image=0,video=0");
  EXPECT_EQ(neither.plan.media_bytes, 0);
  EXPECT_LT(neither.plan.weight_bytes, with("image=1").plan.weight_bytes);
  const std::string text = plan_text(neither);
  EXPECT_NE(text.find("; --limit-mm-per-prompt leaves no image and no video"), std::string::npos)
      << text;
  const auto wrong = read_plan_model(plan_flags({"--limit-mm-per-prompt", "image=x"}), "qwen3.5-4b",
                                     {}, terminal_);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("limit-mm-per-prompt"), std::string::npos);
}

TEST_F(PlannedTower, IsLeftOutWhereNoKernelTakesItsHeads) {
  model_.vision->heads = 1;
  const PlanReport left_out = report({"--max-image-tokens", "1024"});
  EXPECT_GT(left_out.others.vision_bytes, 0);
  EXPECT_EQ(left_out.plan.media_bytes, 0);
  const std::string text = plan_text(left_out);
  EXPECT_NE(text.find("; there is no kernel for its heads on a card"), std::string::npos) << text;
}

}  // namespace
}  // namespace nibble
