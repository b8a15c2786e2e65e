// The plan on cards: every byte has a use, in the order of claims; the published capacities; the
// 35B beside its weights on a card of 32 GB.
#include <gtest/gtest.h>

#include <random>

#include "plan/card_defaults.h"
#include "plan/card_limit.h"
#include "plan/memory_plan.h"
#include "plan/testing/real_weights.h"

namespace nibble {
namespace {

constexpr double kGib = 1073741824.0;

MemoryRequest card_request(const ModelConfig& config, int64_t memory_bytes) {
  return {.memory_bytes = memory_bytes,
          .weight_bytes = card_weight_bytes(config, WeightLayout::mixed),
          .page_bytes = kv_page_bytes(config, 1),
          .slot_bytes = state_slot_bytes(config, 4),
          .model_len = {},
          .sequences_max = 64,
          .snapshots = {},
          .kv_cache_bytes = {},
          .rows_max = 2048,
          .workspace_bytes = {},
          .driver_bytes = int64_t{570} << 20,
          .rule = CacheRule::all};
}

TEST(CardPlan, LeavesLessThanAPageAndASlot) {
  for (const char* name : {"qwen3.6-35b-a3b", "qwen3.6-27b", "qwen3.5-9b", "qwen3-30b-a3b"}) {
    const ModelConfig config = real_config(name);
    for (const int64_t gib : {32, 80, 141, 192}) {
      const MemoryRequest request = card_request(config, gib << 30);
      const MemoryPlan plan = plan_memory(config, request).value();
      const int64_t unused = plan.memory_bytes - plan.total_bytes();
      EXPECT_GE(unused, 0) << name << ", " << gib;
      EXPECT_LT(unused, request.page_bytes + request.slot_bytes) << name << ", " << gib;
    }
  }
}

TEST(CardPlan, SequencesThenSnapshotsThenPages) {
  const ModelConfig config = real_config("qwen3.6-35b-a3b");
  const MemoryRequest request = card_request(config, int64_t{141} << 30);
  const MemoryPlan plan = plan_memory(config, request).value();
  EXPECT_EQ(plan.sequences_max, 64);
  EXPECT_EQ(plan.context_max, 262144);
  EXPECT_EQ(plan.pools.sequences_max, 64);
  const int64_t left = plan.memory_bytes - plan.weight_bytes - plan.driver_bytes -
                       plan.workspace_bytes - 64 * request.slot_bytes;
  const int64_t surplus = left - 4 * 4096 * request.page_bytes;
  EXPECT_EQ(plan.snapshots, surplus / 4 / request.slot_bytes);
  EXPECT_EQ(plan.pools.pages, (left - plan.snapshots * request.slot_bytes) / request.page_bytes);
}

TEST(CardPlan, ExplicitFlagsAreKeptExactly) {
  const ModelConfig config = real_config("qwen3.6-35b-a3b");
  MemoryRequest request = card_request(config, int64_t{141} << 30);
  request.snapshots = 7;
  EXPECT_EQ(plan_memory(config, request).value().snapshots, 7);
  request.kv_cache_bytes = 5000 * request.page_bytes + 1;
  EXPECT_EQ(plan_memory(config, request).value().pools.pages, 5000);
  request.snapshots = {};
  const MemoryPlan plan = plan_memory(config, request).value();
  EXPECT_EQ(plan.pools.pages, 5000);
  EXPECT_LE(plan.snapshots * request.slot_bytes, plan.kv_bytes / 3);
  request.sequences_max = 256;  // there is memory for that
  request.kv_cache_bytes = {};
  EXPECT_EQ(plan_memory(config, request).value().sequences_max, 256);
  request.snapshots = 1'000'000;
  EXPECT_EQ(plan_memory(config, request).error().code, ErrorCode::no_memory);
  request.snapshots = {};
  request.kv_cache_bytes = int64_t{141} << 30;
  const auto refused = plan_memory(config, request);
  EXPECT_NE(refused.error().message.find("--kv-cache-memory-bytes"), std::string::npos);
}

TEST(CardPlan, WithoutSharedPrefixesPagesFollowTheSequences) {
  const ModelConfig config = real_config("qwen3.6-35b-a3b");
  MemoryRequest request = card_request(config, int64_t{141} << 30);
  request.reuse = PrefixReuse::none;
  request.sequences_max = 2;
  const MemoryPlan plan = plan_memory(config, request).value();
  EXPECT_EQ(plan.pools.pages, 2 * 4096);
  EXPECT_EQ(plan.snapshots, 4);
}

TEST(CardPlan, OneRequestOfFullLengthComesBeforeMoreSequences) {
  const ModelConfig config = real_config("qwen3.6-35b-a3b");
  MemoryRequest request = card_request(config, int64_t{25} << 30);
  const auto need = request.weight_bytes + request.driver_bytes + request.slot_bytes +
                    4096 * request.page_bytes + pass_bytes(config, request.rows_max, 64);
  request.model_len = 262144;
  request.memory_bytes = need;
  const MemoryPlan tight = plan_memory(config, request).value();
  EXPECT_EQ(tight.sequences_max, 1);
  EXPECT_EQ(tight.snapshots, 0);
  EXPECT_EQ(tight.pools.pages, 4096);
  EXPECT_NE(tight.table().find("sequences at once: 1, not 64"), std::string::npos) << tight.table();
  request.memory_bytes = need - 1;
  const auto refused = plan_memory(config, request);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--max-model-len 262144"), std::string::npos);
}

TEST(CardPlan, SaysWhatOthersHold) {
  const ModelConfig config = real_config("qwen3.6-35b-a3b");
  MemoryRequest request = card_request(config, int64_t{30} << 30);
  EXPECT_EQ(plan_memory(config, request).value().table().find("other processes"),
            std::string::npos);
  request.asked_bytes = int64_t{31} << 30;
  request.others_bytes = int64_t{2} << 30;
  const std::string table = plan_memory(config, request).value().table();
  EXPECT_NE(table.find("other processes hold 2147.5 MB: 32212.3 MB are planned"), std::string::npos)
      << table;
  request.memory_bytes = int64_t{15} << 30;
  const auto refused = plan_memory(config, request);
  EXPECT_NE(refused.error().message.find("other processes hold 2147.5 MB of the card"),
            std::string::npos)
      << refused.error().message;
}

TEST(CardPlan, SmallModelsDoNotFillTheHostWithBookkeeping) {
  const ModelConfig config = smallest_config();
  MemoryRequest request = card_request(config, int64_t{4} << 40);
  request.weight_bytes = 0;
  const MemoryPlan plan = plan_memory(config, request).value();
  EXPECT_EQ(plan.pools.pages, 1 << 20);
  EXPECT_GT(plan.snapshots, 0);
  request.host_bytes = int64_t{1} << 50;
  EXPECT_GT(plan_memory(config, request).value().pools.host_pages, 0);
  request.memory_bytes = int64_t{1} << 60;  // no number overflows
  EXPECT_EQ(plan_memory(config, request).value().pools.pages, 1 << 20);
}

/// Requests at random: what comes out holds what the rule promises, or is an error.
TEST(CardPlan, HoldsItsPromises) {
  const ModelConfig config = real_config("qwen3.6-35b-a3b");
  const MemoryRequest whole = card_request(config, 0);
  std::mt19937 engine(7);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(engine);
  };
  int planned = 0;
  for (int round = 0; round < 20000; ++round) {
    MemoryRequest request = whole;
    request.memory_bytes = draw(20, 60) << 30;
    request.sequences_max = static_cast<int32_t>(draw(1, 300));
    request.full_length_sequences = static_cast<int32_t>(draw(1, 3));
    if (round % 2 == 0) request.model_len = draw(2, 262144);
    if (round % 3 == 0) request.snapshots = static_cast<int32_t>(draw(0, 100));
    if (round % 5 == 0) request.kv_cache_bytes = draw(1, int64_t{20} << 30);
    if (round % 7 == 0) request.page_bytes = 0;
    if (round % 11 == 0) request.slot_bytes = 0;
    const auto made = plan_memory(config, request);
    if (!made.ok()) continue;
    ++planned;
    const MemoryPlan& plan = made.value();
    ASSERT_LE(plan.total_bytes(), plan.memory_bytes);
    ASSERT_GE(plan.sequences_max, request.full_length_sequences);
    ASSERT_LE(plan.sequences_max, request.sequences_max);
    ASSERT_EQ(plan.pools.state_slots, plan.sequences_max + plan.snapshots);
    ASSERT_GE(plan.context_max, 2);
    ASSERT_GE(plan.full_length_requests(), request.model_len ? 1 : request.full_length_sequences);
    if (request.model_len) ASSERT_EQ(plan.context_max, *request.model_len);
    if (request.snapshots) ASSERT_EQ(plan.snapshots, *request.snapshots);
    if (request.kv_cache_bytes && request.page_bytes > 0)
      ASSERT_EQ(plan.pools.pages, *request.kv_cache_bytes / request.page_bytes);
  }
  EXPECT_GT(planned, 10000);
}

/// inferRouter's model card, one RTX 5090: GiB of KV cache and how many requests of full length
/// vLLM said they hold. There a block of every kind is as large as one layer's state: 32 x 128 x
/// 128 in F32 and 3 x 8,192 in BF16, 2,146,304 bytes, which are 2,096 tokens of an attention layer
/// in FP8 (1,024 bytes a token) or 4,096 in turboquant_4bit_nc (524). A request takes a block of
/// ten layers for each of those tokens, and 3 for its states (30 layers), or 6 with prefix caching:
/// 4.63 GiB are 231 blocks, 32,768 tokens take 16 + 3 of them, 231 / 19 = 12.16; 4.97 GiB are 248,
/// 262,144 tokens take 126 + 6, 248 / 132 = 1.88. Here a state is 65.9 MB, its convolution in F32,
/// and a page 64 tokens, so less is lost at the ends.
struct Published {
  const char* kv;
  double token_bytes;  // of one attention layer
  double gib;
  int64_t tokens;
  double requests;
};

TEST(CardPlan, HoldsThePublishedRequests) {
  const ModelConfig config = real_config("qwen3.6-35b-a3b");
  const std::vector<Published> rows = {
      {"BF16 head, FP8", 1024, 4.63, 32768, 12.16}, {"BF16 head, 4 bits", 524, 4.94, 32768, 22.45},
      {"FP8 head, FP8", 1024, 5.10, 32768, 13.42},  {"FP8 head, 4 bits", 524, 5.41, 32768, 24.55},
      {"BF16 head, FP8", 1024, 4.97, 262144, 1.88}, {"BF16 head, 4 bits", 524, 5.48, 262144, 3.90},
  };
  ASSERT_EQ(kv_page_bytes(config, 1), 10 * 64 * 1024);
  for (const Published& row : rows) {
    const auto bytes = static_cast<int64_t>(row.gib * kGib);
    const auto page_bytes = static_cast<int64_t>(10 * 64 * row.token_bytes);
    const int64_t slot_bytes = state_slot_bytes(config, 4);
    const double requests = requests_held(bytes, row.tokens, page_bytes, slot_bytes);
    EXPECT_NEAR(requests / row.requests, 1.0, 0.06) << row.kv << ", " << row.tokens;
    // A plan of exactly these bytes runs as many at once.
    const auto whole = static_cast<int32_t>(requests);
    const MemoryPlan plan = plan_memory(config, {.memory_bytes = bytes,
                                                 .page_bytes = page_bytes,
                                                 .slot_bytes = slot_bytes,
                                                 .model_len = row.tokens,
                                                 .full_length_sequences = whole,
                                                 .sequences_max = whole,
                                                 .snapshots = 0,
                                                 .workspace_bytes = 0,
                                                 .rule = CacheRule::all})
                                .value();
    EXPECT_EQ(plan.concurrency(), whole) << row.kv << ", " << row.tokens;
    EXPECT_EQ(plan.context_max, row.tokens);
  }
}

/// That model in the layout of its file on that card, 1 GiB of which is the desktop's, planned with
/// the flags of the two published lines, holds more requests than published.
TEST(CardPlan, OnTheCardThereIsMoreThanPublished) {
  const ModelConfig config = real_config("qwen3.6-35b-a3b");
  constexpr int64_t kContext = int64_t{530} << 20;
  struct Row {
    double share;
    int64_t tokens;
    int32_t sequences;
    int32_t rows;
    int64_t token_bytes;
    double published;
  };
  const std::vector<Row> rows = {{0.93, 32768, 16, 4096, 1024, 12.16},
                                 {0.93, 32768, 16, 4096, 524, 22.45},
                                 {0.95, 262144, 64, 8192, 1024, 1.88},
                                 {0.95, 262144, 64, 8192, 524, 3.90}};
  for (const Row& row : rows) {
    const CardBudget budget = card_budget({.card_bytes = card_limit("rtx5090").value().memory_bytes,
                                           .share = row.share,
                                           .taken_bytes = kContext,
                                           .context_bytes = kContext});
    MemoryRequest request = card_request(config, budget.memory_bytes);
    request.weight_bytes = card_weight_bytes(config, WeightLayout::w4a4);
    request.page_bytes = 10 * 64 * row.token_bytes;
    request.model_len = row.tokens;
    request.sequences_max = row.sequences;
    request.rows_max = row.rows;
    // The CUDA backend asks for 117.5 KB a row, as docs/kernels/prefill.md measured.
    request.workspace_bytes = row.rows * int64_t{117'500} + (int64_t{16} << 20);
    request.driver_bytes = kContext + (int64_t{26} << 20);
    const MemoryPlan plan = plan_memory(config, request).value();
    EXPECT_LE(plan.total_bytes(), budget.memory_bytes);
    EXPECT_GT(plan.full_length_requests(), row.published) << plan.table();
    EXPECT_EQ(plan.context_max, row.tokens);
  }
}

}  // namespace
}  // namespace nibble
