// Batches and drafts that no pass may compute, and the words for drafts and caches.
#include <gtest/gtest.h>

#include <functional>

#include "model/draft.h"
#include "model/forward.h"

namespace nibble {
namespace {

ModelConfig eight_tokens() {
  ModelConfig config;
  config.vocab_rows = 8;
  return config;
}

constexpr PoolSizes kSizes{
    .pages = 3, .state_slots = 2, .rows_max = 4, .replay_rows = 3, .media_rows = 2};

/// Two sequences of two rows and of one, at the ends of all that `kSizes` allows.
Batch sound_batch() {
  Batch batch;
  batch.tokens = {0, 7, 5};
  batch.positions.assign(9, 0);
  batch.pages = {0, 2, 1};
  batch.sequences = {{.row_begin = 0,
                      .row_count = 2,
                      .kv_begin = 2 * kPageTokens - 2,
                      .page_begin = 0,
                      .page_count = 2,
                      .state_in = 0,
                      .state_out = 1,
                      .replay = 3},
                     {.row_begin = 2, .row_count = 1, .page_begin = 2, .page_count = 1}};
  batch.logit_rows = {0, 2};
  return batch;
}

TEST(ForwardChecksDeathTest, ABatchIsWhatThePoolsHave) {
  const ModelConfig config = eight_tokens();
  validate_batch(sound_batch(), config, kSizes);
  const struct {
    const char* words;
    std::function<void(Batch&)> change;
  } kRefused[] = {
      {"rows 0", [](Batch& b) { b.tokens.clear(); }},
      {"positions 8", [](Batch& b) { b.positions.pop_back(); }},
      {"token -1", [](Batch& b) { b.tokens[0] = -1; }},
      {"token 8", [](Batch& b) { b.tokens[1] = 8; }},
      {"sequence rows 1", [](Batch& b) { b.sequences[0].row_begin = 1; }},
      {"sequence rows 0", [](Batch& b) { b.sequences[0].row_count = 0; }},
      {"page table -1", [](Batch& b) { b.sequences[0].page_begin = -1; }},
      {"page table 2.2", [](Batch& b) { b.sequences[1].page_count = 2; }},
      {"pages 2 for", [](Batch& b) { ++b.sequences[0].kv_begin; }},
      {"state slot -1", [](Batch& b) { b.sequences[0].state_in = -1; }},
      {"state slot 2", [](Batch& b) { b.sequences[0].state_in = 2; }},
      {"state slot -1", [](Batch& b) { b.sequences[1].state_out = -1; }},
      {"state slot 2", [](Batch& b) { b.sequences[1].state_out = 2; }},
      {"replay of -1", [](Batch& b) { b.sequences[0].replay = -1; }},
      {"replay of 4", [](Batch& b) { b.sequences[0].replay = 4; }},
      {"sequences cover 2 of 3", [](Batch& b) { b.sequences.pop_back(); }},
      {"page 3", [](Batch& b) { b.pages[1] = 3; }},
      {"page -1", [](Batch& b) { b.pages[1] = -1; }},
      {"carried tokens of 2", [](Batch& b) { b.carried.resize(2); }},
      {"choices of 1", [](Batch& b) { b.choices.resize(1); }},
      {"media row 2", [](Batch& b) { b.embeddings = {{.row = 0, .place = 2}}; }},
      {"media row -1", [](Batch& b) { b.embeddings = {{.row = 0, .place = -1}}; }},
  };
  for (const auto& [words, change] : kRefused) {
    Batch batch = sound_batch();
    change(batch);
    EXPECT_DEATH(validate_batch(batch, config, kSizes), words);
  }
  PoolSizes fewer = kSizes;
  fewer.rows_max = 3;
  validate_batch(sound_batch(), config, fewer);
  fewer.rows_max = 2;
  EXPECT_DEATH(validate_batch(sound_batch(), config, fewer), "rows 3 of at most 2");
}

DraftBatch sound_drafts() {
  return {.sequences = {{.kv_begin = 2 * kPageTokens - 3,
                         .page_begin = 0,
                         .page_count = 2,
                         .state = 1,
                         .replay = 3,
                         .token = 7,
                         .count = 3},
                        {.kv_begin = 1, .page_begin = 2, .page_count = 1, .token = 0, .count = 1}},
          .pages = {0, 2, 1}};
}

TEST(ForwardChecksDeathTest, DraftsAreWhatThePoolsHave) {
  const ModelConfig config = eight_tokens();
  validate_draft(sound_drafts(), config, kSizes);
  const struct {
    const char* words;
    std::function<void(DraftBatch&)> change;
  } kRefused[] = {
      {"drafts of 0 sequences", [](DraftBatch& b) { b.sequences.clear(); }},
      {"drafts of 5 sequences", [](DraftBatch& b) { b.sequences.resize(5, b.sequences[1]); }},
      {"drafts of 0 tokens", [](DraftBatch& b) { b.sequences[1].count = 0; }},
      {"drafts of 4 tokens after 3", [](DraftBatch& b) { b.sequences[1].count = 4; }},
      {"a draft after 0 tokens", [](DraftBatch& b) { b.sequences[1].kv_begin = 0; }},
      {"page table -1", [](DraftBatch& b) { b.sequences[0].page_begin = -1; }},
      {"page table 2.2", [](DraftBatch& b) { b.sequences[1].page_count = 2; }},
      {"pages 2 for", [](DraftBatch& b) { ++b.sequences[0].kv_begin; }},
      {"state slot -1", [](DraftBatch& b) { b.sequences[1].state = -1; }},
      {"state slot 2", [](DraftBatch& b) { b.sequences[1].state = 2; }},
      {"replay of -1", [](DraftBatch& b) { b.sequences[0].replay = -1; }},
      {"replay of 4", [](DraftBatch& b) { b.sequences[0].replay = 4; }},
      {"token -1", [](DraftBatch& b) { b.sequences[0].token = -1; }},
      {"token 8", [](DraftBatch& b) { b.sequences[0].token = 8; }},
      {"page 3", [](DraftBatch& b) { b.pages[2] = 3; }},
      {"page -1", [](DraftBatch& b) { b.pages[2] = -1; }},
  };
  for (const auto& [words, change] : kRefused) {
    DraftBatch batch = sound_drafts();
    change(batch);
    EXPECT_DEATH(validate_draft(batch, config, kSizes), words);
  }
}

TEST(ForwardChecks, DraftsAndCachesHaveTheirWords) {
  ModelConfig config;
  EXPECT_EQ(draft_entry_words(config), "");
  config.draft_layers = 1;
  EXPECT_EQ(draft_entry_words(config), ", entries of drafts");
  config.draft_format = WeightFormat::nvfp4;
  EXPECT_EQ(draft_entry_words(config), ", entries of drafts, plain weights rounded to nvfp4");
  config.draft_format = WeightFormat::fp8_tensor;
  EXPECT_EQ(draft_entry_words(config), ", entries of drafts, plain weights rounded to fp8");
  EXPECT_EQ(kv_cache_name(KvCache::turboquant_4bit_nc), "turboquant_4bit_nc");
  EXPECT_EQ(kv_cache_name(KvCache::nvfp4), "nvfp4");
  EXPECT_EQ(activations_name(Activations::automatic), "auto");
  EXPECT_EQ(activations_name(Activations::int8), "int8");
}

}  // namespace
}  // namespace nibble
