// The plan on the shape of the 35B model: exact bytes, and what is refused.
#include "plan/memory_plan.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

/// The shape of Qwen3.5-35B-A3B.
ModelConfig big_config() {
  ModelConfig config;
  config.hidden = 2048;
  config.vocab_rows = 248320;
  for (int layer = 0; layer < 40; ++layer)
    config.layers.push_back(layer % 4 == 3 ? LayerKind::attention : LayerKind::delta_net);
  config.attention = {
      .q_heads = 16, .kv_heads = 2, .head_dim = 256, .output_gate = true, .rope = {}};
  config.delta_net = {.k_heads = 16, .v_heads = 32, .k_dim = 128, .v_dim = 128};
  config.moe = MoeConfig{.experts = 256, .top_k = 8, .expert_width = 512, .shared_width = 512};
  config.max_positions = 262144;
  return config;
}

MemoryRequest request_for(const ModelConfig& config, int64_t memory) {
  return {.memory_bytes = memory,
          .weight_bytes = int64_t{22'000'000'000},
          .page_bytes = kv_page_bytes(config, 4),
          .slot_bytes = state_slot_bytes(config, 4),
          .model_len = {},
          .sequences_max = 4,
          .kv_cache_bytes = {}};
}

TEST(MemoryPlan, BytesOfTheKnownModel) {
  const ModelConfig config = big_config();
  EXPECT_EQ(kv_page_bytes(config, 1), 10 * 64 * 2 * 2 * 256);  // 640 KiB in FP8
  // 30 layers x (32 x 128 x 128 + 3 x 8192) x 4 bytes.
  EXPECT_EQ(state_slot_bytes(config, 4), 65863680);
  EXPECT_EQ(state_slot_bytes(config, 2), 34406400);  // the convolution's inputs stay F32
}

TEST(MemoryPlan, ReservesEnoughForAllWhereMemoryIsAmple) {
  const ModelConfig config = big_config();
  const MemoryPlan plan = plan_memory(config, request_for(config, int64_t{512} << 30)).value();
  EXPECT_EQ(plan.context_max, 262144);
  EXPECT_EQ(plan.pools.pages, 4096 * 4);
  EXPECT_EQ(plan.concurrency(), 4.0);
  EXPECT_EQ(plan.kv_bytes, plan.pools.pages * kv_page_bytes(config, 4));
  EXPECT_LE(plan.total_bytes(), plan.memory_bytes);
  EXPECT_GE(plan.pools.rows_max, plan.sequences_max + kPageTokens);
  EXPECT_EQ(plan.snapshots, 8);
  EXPECT_EQ(plan.pools.state_slots, 12);
  EXPECT_EQ(plan.pools.host_pages, 0);
}

TEST(MemoryPlan, MemoryOfImagesIsAClaimBeforeCaches) {
  const ModelConfig config = big_config();
  MemoryRequest request = request_for(config, int64_t{40} << 30);
  const MemoryPlan blind = plan_memory(config, request).value();
  EXPECT_EQ(blind.media_bytes, 0);
  request.image_tokens_max = 1024;
  request.media_rows = 8192;
  request.vision_rows = 4096;
  request.media_bytes = 150'000'000;
  const MemoryPlan plan = plan_memory(config, request).value();
  EXPECT_EQ(plan.pools.media_rows, 8192);
  EXPECT_EQ(plan.pools.vision_rows, 4096);
  EXPECT_EQ(plan.reserved().media, 150'000'000);
  EXPECT_EQ(plan.reserved().total(), plan.total_bytes());
  EXPECT_LT(plan.kv_bytes, blind.kv_bytes);
  EXPECT_NE(plan.table().find("images 150.0 MB (up to 1024 tokens each, 8192 kept)"),
            std::string::npos)
      << plan.table();
  EXPECT_EQ(blind.table().find("images"), std::string::npos);
}

TEST(MemoryPlan, MappedWeightsAreTold) {
  MemoryRequest request = request_for(big_config(), int64_t{64} << 30);
  const auto line = [&] { return plan_memory(big_config(), request).value().table(); };
  EXPECT_EQ(line().find("memory: weights 22000.0 MB, workspace "), 0U) << line();
  request.mapped_bytes = 4'637'000'000;
  EXPECT_EQ(line().find("memory: weights 22000.0 MB (4637.0 MB in mapped files), workspace "), 0U)
      << line();
}

/// The parts that a backend is held to are all of the plan but the driver's.
TEST(MemoryPlan, ReservedIsAllButTheDriver) {
  const ModelConfig config = big_config();
  MemoryRequest request = request_for(config, int64_t{64} << 30);
  request.table_bytes = 384;
  request.driver_bytes = 7777;
  MemoryPlan plan = plan_memory(config, request).value();
  EXPECT_EQ(plan.reserved().total() + 7777, plan.total_bytes());
  EXPECT_EQ(plan.reserved().tables, 384);
  EXPECT_EQ(plan.reserved().states, plan.pools.state_slots * request.slot_bytes);
  EXPECT_EQ(plan.pools.logit_rows, 4);
  EXPECT_EQ(largest_pass(request).logit_rows, 4);
  request.replay_rows = 6;
  EXPECT_EQ(plan_memory(config, request).value().pools.logit_rows, 24);
  request.replay_rows = 600;  // never more than rows
  EXPECT_EQ(plan_memory(config, request).value().pools.logit_rows, 512);
}

TEST(MemoryPlan, SolvesLengthForTheSequencesAsked) {
  const ModelConfig config = big_config();
  MemoryRequest request = request_for(config, int64_t{26} << 30);
  const MemoryPlan one = plan_memory(config, request).value();
  request.full_length_sequences = 3;
  const MemoryPlan three = plan_memory(config, request).value();
  EXPECT_EQ(three.pools.pages, one.pools.pages);
  EXPECT_EQ(three.context_max, one.pools.pages / 3 * 64 + 1);
  EXPECT_GE(three.concurrency(), 3.0);
  EXPECT_EQ(one.concurrency(), 1.0);
  request.full_length_sequences = 5;
  EXPECT_EQ(plan_memory(config, request).error().code, ErrorCode::invalid_argument);
}

TEST(MemoryPlan, SnapshotsTakeAtMostAQuarter) {
  const ModelConfig config = big_config();
  MemoryRequest request = request_for(config, int64_t{24} << 30);
  request.sequences_max = 8;
  const MemoryPlan plan = plan_memory(config, request).value();
  EXPECT_LT(plan.snapshots, 16);
  const int64_t left = plan.memory_bytes - plan.weight_bytes - plan.workspace_bytes -
                       plan.sequences_max * request.slot_bytes;
  EXPECT_LE(plan.snapshots * request.slot_bytes, left / 4);
  request.snapshots = 3;
  EXPECT_EQ(plan_memory(config, request).value().pools.state_slots, 11);
  request.snapshots = 100000;
  EXPECT_EQ(plan_memory(config, request).error().code, ErrorCode::no_memory);
}

TEST(MemoryPlan, HostTierStaysWithinItsBytes) {
  const ModelConfig config = big_config();
  MemoryRequest request = request_for(config, int64_t{64} << 30);
  request.host_bytes = int64_t{4} << 30;
  const MemoryPlan plan = plan_memory(config, request).value();
  EXPECT_LE(plan.host_bytes, request.host_bytes);
  EXPECT_GT(plan.host_bytes, request.host_bytes * 9 / 10);
  EXPECT_GT(plan.pools.host_pages, 0);
  EXPECT_GT(plan.pools.host_slots, 0);
  EXPECT_EQ(plan.pools.host_media_rows, 0);
  EXPECT_LE(plan.total_bytes(), plan.memory_bytes);
  request.media_rows = 8192;
  request.media_cache_bytes = int64_t{8192} * 8192;
  const MemoryPlan sees = plan_memory(config, request).value();
  EXPECT_EQ(sees.pools.host_media_rows, 4 * 8192);  // four times those of the device
  EXPECT_LE(sees.host_bytes, request.host_bytes);
  EXPECT_GT(sees.host_bytes, request.host_bytes * 9 / 10);
  EXPECT_LT(sees.pools.host_pages, plan.pools.host_pages);
  request.media_rows = 1 << 20;
  request.media_cache_bytes = int64_t{1 << 20} * 8192;
  EXPECT_EQ(plan_memory(config, request).value().pools.host_media_rows, 65536);  // an eighth
}

TEST(MemoryPlan, ShortensTheContextWhenAutomatic) {
  const ModelConfig config = big_config();
  const MemoryPlan plan = plan_memory(config, request_for(config, int64_t{26} << 30)).value();
  EXPECT_LT(plan.context_max, 262144);
  EXPECT_EQ(plan.context_max, plan.pools.pages * 64 + 1);
  EXPECT_LE(plan.total_bytes(), plan.memory_bytes);
}

TEST(MemoryPlan, RefusesWhatCannotFit) {
  const ModelConfig config = big_config();
  EXPECT_EQ(plan_memory(config, request_for(config, int64_t{20} << 30)).error().code,
            ErrorCode::no_memory);
  MemoryRequest request = request_for(config, int64_t{26} << 30);
  request.model_len = 262144;
  const auto refused = plan_memory(config, request);
  EXPECT_EQ(refused.error().code, ErrorCode::no_memory);
  EXPECT_NE(refused.error().message.find("--max-model-len 262144"), std::string::npos);
  request.model_len = 262145;
  EXPECT_EQ(plan_memory(config, request).error().code, ErrorCode::invalid_argument);
  request.model_len = {};
  request.kv_cache_bytes = int64_t{26} << 30;
  EXPECT_EQ(plan_memory(config, request).error().code, ErrorCode::no_memory);
  request.kv_cache_bytes = request.page_bytes - 1;
  EXPECT_EQ(plan_memory(config, request).error().code, ErrorCode::no_memory);
  request.kv_cache_bytes = {};
  request.rows_max = request.sequences_max + kPageTokens - 1;
  EXPECT_EQ(plan_memory(config, request).error().code, ErrorCode::invalid_argument);
  request.rows_max = 512;
  request.sequences_max = 0;
  EXPECT_EQ(plan_memory(config, request).error().code, ErrorCode::invalid_argument);
}

TEST(MemoryPlan, ObeysKvCacheBytesExactly) {
  const ModelConfig config = big_config();
  MemoryRequest request = request_for(config, int64_t{512} << 30);
  request.kv_cache_bytes = 100 * request.page_bytes + 5;
  const MemoryPlan plan = plan_memory(config, request).value();
  EXPECT_EQ(plan.pools.pages, 100);
  EXPECT_EQ(plan.context_max, 6401);
  request.model_len = 6401;
  EXPECT_TRUE(plan_memory(config, request).ok());
  request.model_len = 6402;
  EXPECT_FALSE(plan_memory(config, request).ok());
}

TEST(MemoryPlan, TakesAnExplicitLengthPastTheDefaultShare) {
  const ModelConfig config = big_config();
  MemoryRequest request = request_for(config, int64_t{26} << 30);
  const int64_t automatic = plan_memory(config, request).value().context_max;
  request.model_len = automatic * 3 / 2;
  EXPECT_EQ(plan_memory(config, request).value().context_max, automatic * 3 / 2);
}

}  // namespace
}  // namespace nibble
