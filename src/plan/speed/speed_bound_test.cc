// The bytes of a step and the bound they give, against a table that was computed by hand for the
// 35B with NVFP4 experts and head, FP8 projections, FP8 pages and a context of 2,048.
#include "plan/speed/speed_bound.h"

#include <gtest/gtest.h>

#include "plan/memory_plan.h"
#include "plan/testing/real_models.h"

namespace nibble {
namespace {

struct Rows {
  ModelConfig config = real_config("qwen3.6-35b-a3b");
  std::vector<WeightRow> weights = tally_in_file(
      synthetic_weights(config, formats_of(WeightLayout::mixed_nvfp4_head)), usual_file_bytes());
  StepBytes of(int64_t streams, int64_t context) const {
    return step_bytes(config, weights,
                      {.streams = streams,
                       .context = context,
                       .page_bytes = kv_page_bytes(config, 1),
                       .slot_bytes = state_slot_bytes(config, 4)});
  }
};

TEST(SpeedBound, ExpertsThatABatchMeets) {
  EXPECT_NEAR(experts_met(256, 8, 1), 8.0, 1e-9);
  EXPECT_NEAR(experts_met(256, 8, 8), 57.4, 0.05);
  EXPECT_NEAR(experts_met(256, 8, 32), 163.3, 0.05);
  EXPECT_NEAR(experts_met(256, 8, 64), 222.4, 0.05);
  EXPECT_NEAR(experts_met(256, 8, 128), 251.6, 0.05);
}

TEST(SpeedBound, BytesOfAStep) {
  const Rows rows;
  struct Case {
    int64_t streams;
    double total_gb;
    double experts_mb;
    double tokens;  // a second at 1,792 GB/s
  };
  for (const Case& row :
       {Case{1, 2.40, 566, 745}, Case{8, 6.95, 4064, 2063}, Case{32, 18.0, 11559, 3179},
        Case{64, 27.0, 15744, 4245}, Case{128, 38.7, 17808, 5933}}) {
    const StepBytes bytes = rows.of(row.streams, 2048);
    EXPECT_NEAR(static_cast<double>(bytes.total()) / 1e9 / row.total_gb, 1.0, 0.015) << row.streams;
    EXPECT_NEAR(static_cast<double>(bytes.experts) / 1e6 / row.experts_mb, 1.0, 0.005);
    EXPECT_NEAR(tokens_per_second(bytes, row.streams, 1.792e12) / row.tokens, 1.0, 0.02);
  }
}

TEST(SpeedBound, LongContextsCostTheirPages) {
  const Rows rows;
  EXPECT_EQ(rows.of(1, 262144).kv, int64_t{262144} * 10240);
  EXPECT_EQ(rows.of(1, 262144).experts, rows.of(1, 2048).experts);
  EXPECT_NEAR(tokens_per_second(rows.of(1, 262144), 1, 1.792e12) / 354, 1.0, 0.02);
}

TEST(SpeedBound, ATiedEmbeddingIsReadWhole) {
  const ModelConfig config = real_config("qwen3.5-4b");
  const auto weights =
      tally_in_file(synthetic_weights(config, formats_of(WeightLayout::bf16)), usual_file_bytes());
  const StepBytes bytes = step_bytes(config, weights, {});
  EXPECT_EQ(bytes.other_weights, total_bytes(weights));
  EXPECT_EQ(bytes.experts, 0);
}

}  // namespace
}  // namespace nibble
