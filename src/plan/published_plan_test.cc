// Plans beside the contexts and command lines that were published for the same model and cards.
#include <gtest/gtest.h>

#include "plan/card_defaults.h"
#include "plan/card_table.h"
#include "plan/memory_plan.h"
#include "plan/testing/real_weights.h"

namespace nibble {
namespace {

/// The flags of a published line.
struct Line {
  std::string_view card;
  double share = 0.9;
  int64_t element_bytes = 2;  // of keys and values: 2 BF16, 1 FP8
  std::optional<int64_t> model_len;
  int32_t sequences = 32;
  int32_t rows = 2048;
};

/// The 35B in the W4A4 layout of the published files, as `serve` plans it on the card.
Result<MemoryPlan> plan_of(const Line& line) {
  static const ModelConfig config = real_config("qwen3.6-35b-a3b");
  const PlannedCard card = find_card(line.card).value();
  const int64_t context = card_context_bytes(card.capability);
  const CardBudget budget = card_budget({.card_bytes = card.memory_bytes,
                                         .share = line.share,
                                         .taken_bytes = context,
                                         .context_bytes = context});
  MemoryRequest request{.memory_bytes = budget.memory_bytes,
                        .weight_bytes = card_weight_bytes(config, WeightLayout::w4a4),
                        .page_bytes = kv_page_bytes(config, line.element_bytes),
                        .slot_bytes = state_slot_bytes(config, 4),
                        .sequences_max = line.sequences,
                        .rows_max = line.rows,
                        .driver_bytes = context + (int64_t{26} << 20),
                        .rule = CacheRule::all};
  request.model_len = line.model_len;
  return plan_memory(config, request);
}

/// IG1's table for a desktop RTX 5090: utilization against context. vLLM reserves blocks of 2,096
/// tokens for every kind of layer (card_plan_test.cc), keeps the vision tower and the largest
/// recorded pass in memory, and measures the rest with a profile; its contexts cost 85 to 98 KB a
/// token. The model's own pages need 20,480 bytes a token in BF16.
TEST(PublishedPlan, ADesktopCardHoldsLongerRequestsThanPublished) {
  struct Row {
    std::string_view card;
    double share;
    int32_t published;
  };
  const std::vector<Row> rows = {{"rtx5090", 0.885, 12'500},
                                 {"rtx5090", 0.905, 19'500},
                                 {"rtx5090", 0.926, 28'000},
                                 {"rtx5090:headless", 0.956, 40'000}};
  for (const Row& row : rows) {
    const MemoryPlan plan = plan_of({.card = row.card, .share = row.share}).value();
    EXPECT_GT(plan.context_max, 4 * row.published) << row.share;
    EXPECT_LE(plan.total_bytes(), plan.memory_bytes) << row.share;
  }
  const double card_bytes = 32607.0 * 1048576;
  for (size_t i = 1; i < 3; ++i) {
    const double implied = (rows[i].share - rows[i - 1].share) * card_bytes /
                           (rows[i].published - rows[i - 1].published);
    EXPECT_GT(implied, 84e3);
    EXPECT_LT(implied, 99e3);
  }
  EXPECT_EQ(kv_page_bytes(real_config("qwen3.6-35b-a3b"), 2) / kPageTokens, 20480);
}

/// The same table's memory by --max-num-seqs grows by 1.4 GiB from 1 to 256. Here each sequence
/// that may run has its state from the start, at most a quarter of the room in all, and the rest
/// stays pages: one request of 40,000 tokens fits beside any number.
TEST(PublishedPlan, SequencesTakeTheirStatesFromThePages) {
  int64_t pages = INT64_MAX;
  for (const int32_t sequences : {1, 8, 32, 64, 128, 256}) {
    const MemoryPlan plan =
        plan_of({.card = "rtx5090", .share = 0.926, .sequences = sequences}).value();
    EXPECT_GT(plan.context_max, 40'000) << sequences;
    EXPECT_LE(plan.pools.pages, pages) << sequences;
    EXPECT_LE(plan.sequences_max, sequences);
    EXPECT_LE(plan.sequences_max * state_slot_bytes(real_config("qwen3.6-35b-a3b"), 4),
              std::max<int64_t>(plan.memory_bytes / 4, 4 * 65863680));
    pages = plan.pools.pages;
  }
}

/// One request of 262,144 tokens in BF16 takes 5.0 GiB of pages and a state of 63 MiB; IG1's line
/// reserves 20.6 GiB for it.
TEST(PublishedPlan, AFullContextInBf16OnAWorkstationCard) {
  const MemoryPlan plan = plan_of({.card = "rtx-pro-6000",
                                   .share = 0.65,
                                   .model_len = 262144,
                                   .sequences = 16,
                                   .rows = 8192})
                              .value();
  EXPECT_EQ(plan.context_max, 262144);
  EXPECT_GE(plan.full_length_requests(), 4.0);
  const double gib = 4096.0 * static_cast<double>(plan.kv_bytes) / plan.pools.pages / (1 << 30);
  EXPECT_DOUBLE_EQ(gib, 5.0);
}

/// The two published lines for a DGX Spark: FP8 keys and values, 4 sequences.
TEST(PublishedPlan, TheLinesForADgxSpark) {
  const MemoryPlan half = plan_of({.card = "dgx-spark",
                                   .share = 0.85,
                                   .element_bytes = 1,
                                   .model_len = 65536,
                                   .sequences = 4,
                                   .rows = 2048})
                              .value();
  EXPECT_EQ(half.context_max, 65536);
  EXPECT_EQ(half.concurrency(), 4.0);
  const MemoryPlan whole = plan_of({.card = "dgx-spark",
                                    .share = 0.4,
                                    .element_bytes = 1,
                                    .model_len = 262144,
                                    .sequences = 4,
                                    .rows = 8192})
                               .value();
  EXPECT_EQ(whole.context_max, 262144);
  EXPECT_EQ(whole.concurrency(), 4.0);
}

/// The advice of the same guide for a 5090 is the 9B; the 35B does not fit a card of 24 GB in this
/// layout, and the error has the numbers.
TEST(PublishedPlan, ASmallerCardIsRefusedWithTheNumbers) {
  const auto refused = plan_of({.card = "rtx4090"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::no_memory);
  EXPECT_NE(refused.error().message.find("at least"), std::string::npos);
  EXPECT_NE(refused.error().message.find("MB"), std::string::npos);
}

}  // namespace
}  // namespace nibble
