// The names of arithmetic and caches, which reports and metrics show, and what a batch must be. The
// walk over the layers is tested with every backend.
#include "model/forward.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(BackendNames, AreTheWordsOfTheOptions) {
  EXPECT_EQ(activations_name(Activations::bf16), "bf16");
  EXPECT_EQ(activations_name(Activations::declared), "declared");
  EXPECT_EQ(activations_name(Activations::f32), "f32");
  EXPECT_EQ(activations_words(Activations::declared, InputScales::amax), "declared");
  EXPECT_EQ(activations_words(Activations::declared, InputScales::four_over_six),
            "declared with four-over-six");
  EXPECT_EQ(activations_words(Activations::bf16, InputScales::four_over_six), "bf16");
  EXPECT_EQ(kv_cache_name(KvCache::automatic), "auto");
  EXPECT_EQ(kv_cache_name(KvCache::bf16), "bf16");
  EXPECT_EQ(kv_cache_name(KvCache::fp8), "fp8");
  EXPECT_EQ(state_cache_name(StateCache::bf16), "bf16");
  EXPECT_EQ(state_cache_name(StateCache::f32), "f32");
}

ModelConfig eight_tokens() {
  ModelConfig config;
  config.vocab_rows = 8;
  return config;
}

/// Two rows of one sequence, valid where there are eight tokens and one page.
Batch two_rows() {
  Batch batch;
  batch.tokens = {5, 6};
  batch.positions = {0, 1, 0, 1, 0, 1};
  batch.pages = {0};
  batch.sequences = {{.row_count = 2, .page_count = 1}};
  return batch;
}

TEST(ValidateBatchDeathTest, MediaRowsAscendFromTheFirst) {
  const PoolSizes sizes{.pages = 1, .state_slots = 1, .rows_max = 2, .media_rows = 1};
  const ModelConfig config = eight_tokens();
  Batch batch = two_rows();
  const auto validate_with = [&](const std::vector<int32_t>& rows) {
    batch.embeddings.clear();
    for (const int32_t row : rows) batch.embeddings.push_back({.row = row, .place = 0});
    validate_batch(batch, config, sizes);
  };
  validate_with({0, 1});
  EXPECT_DEATH(validate_with({-1}), "embedding of row -1");
  EXPECT_DEATH(validate_with({1, 1}), "embedding of row 1");
  EXPECT_DEATH(validate_with({2}), "embedding of row 2");
}

TEST(ValidateBatchDeathTest, LogitsAreOfRowsOfTheBatch) {
  const PoolSizes sizes{.pages = 1, .state_slots = 1, .rows_max = 2};
  const ModelConfig config = eight_tokens();
  Batch batch = two_rows();
  const auto validate_with = [&](std::vector<int32_t> rows) {
    batch.logit_rows = std::move(rows);
    validate_batch(batch, config, sizes);
  };
  validate_with({0, 1});
  EXPECT_DEATH(validate_with({-1}), "logit row -1");
  EXPECT_DEATH(validate_with({0, 2}), "logit row 2");
}

}  // namespace
}  // namespace nibble
