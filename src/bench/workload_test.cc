// Prompts of a seed: their lengths, what they share, and that each can be made alone.
#include "bench/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace nibble {
namespace {

Json made(const WorkloadPlan& plan, int64_t task, const std::vector<Exchange>& before = {}) {
  return parse_json(Workload(plan).request(task, before).body, "body").value();
}

TEST(Workload, PromptsHaveTheLengthAndTheRangeThatWereAskedFor) {
  const WorkloadPlan plan{.model = "m",
                          .input_tokens = 40,
                          .output_tokens = 7,
                          .prefix_tokens = 10,
                          .id_first = 5,
                          .id_last = 9};
  const Json body = made(plan, 3);
  const auto& ids = body.find("prompt")->as_array();
  EXPECT_EQ(ids.size(), 50u);
  for (const Json& id : ids) {
    EXPECT_GE(id.as_int(), 5);
    EXPECT_LT(id.as_int(), 9);
  }
  EXPECT_EQ(body.find("max_tokens")->as_int(), 7);
  EXPECT_EQ(body.find("model")->as_string(), "m");
  EXPECT_TRUE(body.find("ignore_eos")->as_bool());
  EXPECT_TRUE(body.find("stream_options")->find("include_usage")->as_bool());
}

TEST(Workload, PromptsShareThePrefixAndNothingElse) {
  const WorkloadPlan plan{.input_tokens = 30, .prefix_tokens = 20, .seed = 1};
  const auto first = made(plan, 0).find("prompt")->as_array();
  const auto second = made(plan, 1).find("prompt")->as_array();
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 20, second.begin()));
  EXPECT_FALSE(std::equal(first.begin() + 20, first.end(), second.begin() + 20));
  WorkloadPlan other = plan;
  other.seed = 2;
  EXPECT_NE(made(other, 0).find("prompt")->as_array(), first);
  EXPECT_EQ(made(plan, 0).find("prompt")->as_array(), first);
}

TEST(Workload, LengthsSpreadEvenlyOverTheirRange) {
  const WorkloadPlan plan{.input_tokens = 100, .output_tokens = 10, .range_ratio = 0.5};
  std::set<int64_t> inputs, outputs;
  for (int64_t task = 0; task < 2000; ++task) {
    const Json body = made(plan, task);
    inputs.insert(static_cast<int64_t>(body.find("prompt")->as_array().size()));
    outputs.insert(body.find("max_tokens")->as_int());
  }
  EXPECT_EQ(inputs.size(), 101u);
  EXPECT_EQ(*inputs.begin(), 50);
  EXPECT_EQ(*inputs.rbegin(), 150);
  EXPECT_EQ(*outputs.begin(), 5);
  EXPECT_EQ(*outputs.rbegin(), 15);
}

TEST(Workload, ConversationsGrow) {
  const WorkloadPlan plan{
      .api = LoadApi::chat, .input_tokens = 4, .prefix_tokens = 3, .words_per_token = 2.0};
  const Workload workload(plan);
  const auto first = workload.request(0, {});
  const Json body = made(plan, 0, {{first.question, "yes"}});
  const auto& messages = body.find("messages")->as_array();
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0].find("role")->as_string(), "system");
  EXPECT_EQ(messages[1].find("content")->as_string(), first.question);
  EXPECT_EQ(messages[2].find("content")->as_string(), "yes");
  const std::string& last = messages[3].find("content")->as_string();
  EXPECT_EQ(std::ranges::count(last, ' '), 7);
  EXPECT_NE(last, first.question);
  EXPECT_NE(body.find("max_completion_tokens"), nullptr);
}

TEST(Workload, ExtraMembersWin) {
  WorkloadPlan plan{.input_tokens = 1};
  plan.extra = parse_json(R"({"ignore_eos":false,"top_k":20})", "x").value();
  const Json body = made(plan, 0);
  EXPECT_FALSE(body.find("ignore_eos")->as_bool());
  EXPECT_EQ(body.find("top_k")->as_int(), 20);
}

}  // namespace
}  // namespace nibble
