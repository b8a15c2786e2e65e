// The defaults of a server by card and model, and the memory that other processes leave of a card.
#include "plan/card_defaults.h"

#include <gtest/gtest.h>

#include "plan/memory_plan.h"
#include "plan/testing/real_weights.h"

namespace nibble {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kContext = 530 * kMib;

/// The room of a card that nobody else uses, at the default share, with 24 MiB of recorded passes.
CardRoom room_of(int64_t card_mib, const ModelConfig& config, int64_t kv_element_bytes) {
  const CardBudget budget = card_budget({.card_bytes = card_mib * kMib,
                                         .share = 0.9,
                                         .taken_bytes = kContext,
                                         .context_bytes = kContext});
  return {.bytes = budget.memory_bytes - budget.context_bytes - 24 * kMib -
                   card_weight_bytes(config, WeightLayout::mixed),
          .page_bytes = kv_page_bytes(config, kv_element_bytes),
          .slot_bytes = state_slot_bytes(config, 4)};
}

TEST(CardDefaults, FollowMemoryAndModel) {
  // By memory as nvidia-smi names it: an RTX 4090, an RTX 5090, an H100, an RTX PRO 6000, an H200.
  constexpr std::array<int64_t, 5> kCards = {24564, 32607, 81559, 97887, 143771};
  struct Row {
    const char* name;
    ModelConfig config;
    int64_t kv_element_bytes;
    std::array<int32_t, 5> sequences;
    std::array<int32_t, 5> rows;
  };
  const ModelConfig big = real_config("qwen3.6-35b-a3b");
  const std::vector<Row> rows = {
      {"35B, FP8 pages", big, 1, {4, 32, 64, 64, 64}, {512, 2048, 8192, 8192, 8192}},
      {"35B, BF16 pages", big, 2, {4, 32, 64, 64, 64}, {512, 2048, 8192, 8192, 8192}},
      {"27B", real_config("qwen3.6-27b"), 2, {4, 12, 64, 64, 64}, {512, 1024, 4096, 8192, 8192}},
      {"9B", real_config("qwen3.5-9b"), 2, {40, 64, 64, 64, 64}, {2048, 4096, 8192, 8192, 8192}},
      {"0.8B", smallest_config(), 2, {64, 64, 64, 64, 64}, {8192, 8192, 8192, 8192, 8192}},
  };
  for (const Row& row : rows)
    for (size_t card = 0; card < kCards.size(); ++card) {
      const ServingDefaults defaults =
          serving_defaults(row.config, room_of(kCards[card], row.config, row.kv_element_bytes));
      EXPECT_EQ(defaults.sequences_max, row.sequences[card]) << row.name << ", " << kCards[card];
      EXPECT_EQ(defaults.rows_max, row.rows[card]) << row.name << ", " << kCards[card];
      EXPECT_GE(defaults.rows_max, defaults.sequences_max + kPageTokens);
    }
}

TEST(CardDefaults, HaveAFloorWhereThereIsNoRoom) {
  const ModelConfig config = real_config("qwen3.6-27b");
  for (const int64_t bytes : {int64_t{-5'000'000'000}, int64_t{0}, int64_t{100'000'000}}) {
    const ServingDefaults defaults = serving_defaults(
        config, {.bytes = bytes, .page_bytes = kv_page_bytes(config, 2), .slot_bytes = 1 << 20});
    EXPECT_EQ(defaults.sequences_max, 4);
    EXPECT_EQ(defaults.rows_max, 512);
  }
}

TEST(CardBudget, TheShareIsOfTheWholeCardAndForThisProcessAlone) {
  struct Row {
    const char* what;
    double share;
    int64_t taken_mib;
    int64_t memory_mib;
    int64_t others_mib;
  };
  constexpr int64_t kCardMib = 32000;
  const std::vector<Row> rows = {
      {"alone", 0.9, 530, 28800, 0},
      {"alone, a context smaller than the table says", 0.9, 400, 28800, 0},
      {"a desktop that leaves enough", 0.9, 530 + 1024, 28800, 1024},
      {"a desktop that does not", 0.95, 530 + 2000, 30000, 2000},
      {"the second of two equal servers", 0.45, 530 + 14400, 14400, 14400},
      {"the second of two that want all", 0.9, 530 + 28800, 3200, 28800},
      {"nothing left", 0.9, 32000, 530, 31470},
  };
  for (const Row& row : rows) {
    const CardBudget budget = card_budget({.card_bytes = kCardMib * kMib,
                                           .share = row.share,
                                           .taken_bytes = row.taken_mib * kMib,
                                           .context_bytes = kContext});
    EXPECT_NEAR(static_cast<double>(budget.memory_bytes) / kMib, row.memory_mib, 1) << row.what;
    EXPECT_EQ(budget.others_bytes, row.others_mib * kMib) << row.what;
    EXPECT_NEAR(static_cast<double>(budget.asked_bytes) / kMib, row.share * kCardMib, 1);
    EXPECT_EQ(budget.context_bytes + budget.others_bytes, row.taken_mib * kMib) << row.what;
  }
}

}  // namespace
}  // namespace nibble
