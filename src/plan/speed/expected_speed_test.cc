// Expected speeds: the model computes again what was measured on an H200 and an H100; one card by
// hand; every card against a recorded table.
#include "plan/speed/expected_speed.h"

#include <gtest/gtest.h>

#include "plan/memory_plan.h"
#include "plan/plan_report.h"
#include "plan/testing/real_models.h"

namespace nibble {
namespace {

struct Model {
  ModelConfig config = real_config("qwen3.6-35b-a3b");
  std::vector<WeightRow> weights;
  explicit Model(WeightLayout layout)
      : weights(tally_in_file(synthetic_weights(config, formats_of(layout)), usual_file_bytes())) {}
  StepLoad load(int64_t streams) const {
    return {.streams = streams,
            .context = 2048,
            .page_bytes = kv_page_bytes(config, 2),
            .slot_bytes = state_slot_bytes(config, 4)};
  }
  std::vector<ExpectedRow> on(std::string_view card) const {
    return expected_speeds(config, weights, load(1), find_card(card).value());
  }
};

TEST(ExpectedSpeed, WorkOfAPromptToken) {
  const Model model(WeightLayout::w4a4);
  const PromptWork work = prompt_work(model.config, model.weights, 8192);
  // 40 layers, 8 experts of 3 x 512 x 2,048 numbers.
  EXPECT_DOUBLE_EQ(work.experts.nvfp4, 2.0 * 40 * 8 * 3 * 512 * 2048);
  EXPECT_EQ(work.experts.others + work.experts.fp8 + work.linears.fp8, 0);
  EXPECT_NEAR(work.linears.nvfp4 + work.linears.others, 2.87e9, 0.02e9);
  EXPECT_DOUBLE_EQ(work.attention, 2.0 * 8192 * 16 * 256 * 10);
  EXPECT_DOUBLE_EQ(work.delta_rule, 10.0 * 32 * 128 * 128 * 30);
  EXPECT_DOUBLE_EQ(work.row_bytes, 120.0 * 2048 * 40);
}

TEST(ExpectedSpeed, AgreesWithThePassThatWasMeasured) {
  const Model model(WeightLayout::mixed_nvfp4_head);
  const PromptWork work = prompt_work(model.config, model.weights, 8192);
  const double seconds = prompt_seconds(work, {790e12, 790e12, 790e12}, kWarpgroupShares, 4.3e12);
  EXPECT_NEAR(1 / seconds / 61479, 1.0, 0.05);
  for (const auto& [streams, measured] :
       {std::pair{1, 647.0}, {8, 2060.0}, {32, 3600.0}, {64, 4862.0}}) {
    const StepBytes bytes = step_bytes(model.config, model.weights, model.load(streams));
    EXPECT_NEAR(step_share(streams) * tokens_per_second(bytes, streams, 3.35e12) / measured, 1.0,
                0.03)
        << streams;
  }
}

TEST(ExpectedSpeed, SharesBetweenBatches) {
  EXPECT_DOUBLE_EQ(step_share(0), 0.47);
  EXPECT_DOUBLE_EQ(step_share(1), 0.47);
  EXPECT_DOUBLE_EQ(step_share(16), 0.59);
  EXPECT_DOUBLE_EQ(step_share(64), 0.65);
  EXPECT_DOUBLE_EQ(step_share(500), 0.65);
}

TEST(ExpectedSpeed, OneCardByHand) {
  const Model model(WeightLayout::w4a4);
  const std::vector<ExpectedRow> rows = model.on("rtx5090");
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[0].streams, 1);
  EXPECT_EQ(rows[4].streams, 0);
  EXPECT_EQ(rows[4].tokens, 8192);
  const PromptWork work = prompt_work(model.config, model.weights, 8192);
  const double linears = work.linears.others / (0.32 * 209.5e12);
  const double rest = work.attention / (0.28 * 209.5e12) + work.delta_rule / (0.074 * 209.5e12) +
                      work.row_bytes / 1792e9;
  const double narrow = work.experts.nvfp4 / 0.24 + work.linears.nvfp4 / 0.32;
  EXPECT_NEAR(1 / rows[4].weight_only, linears + rest + narrow / 209.5e12, 1e-12);
  EXPECT_NEAR(1 / rows[4].native, linears + rest + narrow / 1676e12, 1e-12);
  EXPECT_EQ(rows[4].fp8, rows[4].weight_only);  // of such a model nothing is in FP8
}

TEST(ExpectedSpeed, EveryCardThatHasARate) {
  const Model model(WeightLayout::w4a4);
  for (const CardRates& rates : card_rates()) {
    const PlannedCard card = find_card(rates.card).value();
    EXPECT_EQ(native_formats(card.capability), "BF16, FP8, FP4") << rates.card;
    EXPECT_GT(rates.fp8, rates.bf16);
    EXPECT_GT(rates.fp4, rates.fp8);
    const std::vector<ExpectedRow> rows = model.on(rates.card);
    ASSERT_EQ(rows.size(), 5U);
    for (const ExpectedRow& row : rows) {
      EXPECT_GT(row.weight_only, 0);
      EXPECT_GE(row.native, row.weight_only);
      if (row.streams == 0) continue;
      const StepBytes bytes = step_bytes(model.config, model.weights, model.load(row.streams));
      EXPECT_LT(row.native, tokens_per_second(bytes, row.streams, card.bandwidth_bytes));
    }
    EXPECT_GT(rows[4].native, rows[4].weight_only);
  }
}

struct Expected {
  std::string_view card;
  double streams[4];
  double prompt[2];  // weight-only, products of 4-bit codes
};

TEST(ExpectedSpeed, TheTableOfTheDocuments) {
  const Model model(WeightLayout::w4a4);
  constexpr Expected kTable[] = {
      {"rtx5090", {208, 900, 1769, 2471}, {9107, 15536}},
      {"rtx-pro-6000", {208, 900, 1769, 2471}, {20464, 30608}},
      {"dgx-spark", {32, 137, 269, 376}, {3586, 5564}},
      {"b200", {894, 3867, 7601, 10618}, {38545, 67233}},
      {"gb300", {929, 4018, 7897, 11032}, {38616, 69724}},
  };
  ASSERT_EQ(std::size(kTable), card_rates().size());
  for (const Expected& line : kTable) {
    const std::vector<ExpectedRow> rows = model.on(line.card);
    for (size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(rows[i].weight_only, line.streams[i], 1) << line.card;
    EXPECT_NEAR(rows[4].weight_only, line.prompt[0], 1) << line.card;
    EXPECT_NEAR(rows[4].native, line.prompt[1], 1) << line.card;
  }
}

/// Prompts of a model in `mixed` with its FP8 matrices multiplied as codes.
TEST(ExpectedSpeed, PromptsWithProductsInFp8) {
  const Model model(WeightLayout::mixed);
  EXPECT_GT(prompt_work(model.config, model.weights, kExpectedPrompt).linears.fp8, 2.0 * 0.8e9);
  struct Row {
    std::string_view card;
    double weight_only, fp8;
  };
  for (const auto& [card, weight_only, fp8] :
       {Row{"rtx5090", 9107, 11023}, {"rtx-pro-6000", 20464, 24431}, {"dgx-spark", 3586, 4266}}) {
    const std::vector<ExpectedRow> rows = model.on(card);
    EXPECT_NEAR(rows[4].weight_only, weight_only, 1) << card;
    EXPECT_NEAR(rows[4].fp8, fp8, 1) << card;
    EXPECT_EQ(rows[0].fp8, rows[0].weight_only) << card;
  }
  for (const std::string_view card : {"b200", "gb300"})  // which have no such kernels
    EXPECT_EQ(model.on(card)[4].fp8, model.on(card)[4].weight_only) << card;
}

TEST(ExpectedSpeed, AsJson) {
  PlanReport report;
  EXPECT_EQ(plan_json(report).find("expected_speed"), nullptr);
  report.expected = {{.streams = 8, .tokens = 2048, .weight_only = 10, .fp8 = 15, .native = 20},
                     {.tokens = 8192, .weight_only = 30, .fp8 = 35, .native = 40}};
  EXPECT_EQ(plan_json(report).find("expected_speed")->dump(),
            R"({"computed":true,"rows":[{"work":"generation","tokens":2048,)"
            R"("weight_only_tokens_per_second":10.0,"fp8_tokens_per_second":15.0,)"
            R"("fp4_tokens_per_second":20.0,"streams":8},)"
            R"({"work":"prompt","tokens":8192,"weight_only_tokens_per_second":30.0,)"
            R"("fp8_tokens_per_second":35.0,"fp4_tokens_per_second":40.0}]})");
}

TEST(ExpectedSpeed, PartsAndOtherCards) {
  const Model model(WeightLayout::mixed);
  EXPECT_TRUE(model.on("h100").empty());
  EXPECT_TRUE(model.on("rtx4090").empty());
  const double whole = model.on("rtx-pro-6000")[4].weight_only;
  EXPECT_NEAR(model.on("rtx-pro-6000:2g.48gb")[4].weight_only, whole / 2, 1);
}

}  // namespace
}  // namespace nibble
