// The lists that prompt kernels read, on the host: chunks of the recurrence and tiles of attention
// cover every prompt row once, at absolute positions, and the bounds of their memory hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "backend/cuda/ops/attention/flash_prefill.h"
#include "backend/cuda/ops/delta_net/delta_chunk.h"

namespace nibble::cuda {
namespace {

struct Prompt {
  int32_t kv_begin = 0;
  int32_t rows = 0;
  Arithmetic arithmetic = Arithmetic::prompt;
};

Batch batch_of(const std::vector<Prompt>& prompts) {
  Batch batch;
  for (const Prompt& prompt : prompts) {
    const auto index = static_cast<int32_t>(batch.sequences.size());
    batch.sequences.push_back({.row_begin = batch.rows(),
                               .row_count = prompt.rows,
                               .kv_begin = prompt.kv_begin,
                               .page_begin = 100 * index,
                               .state_in = 10 * index,
                               .state_out = 10 * index + 1,
                               .arithmetic = prompt.arithmetic});
    batch.tokens.resize(batch.tokens.size() + static_cast<size_t>(prompt.rows));
  }
  return batch;
}

std::vector<Prompt> random_prompts(std::mt19937& engine) {
  std::vector<Prompt> prompts(1 + engine() % 9);
  for (Prompt& prompt : prompts)
    prompt = {.kv_begin = static_cast<int32_t>(engine() % 200),
              .rows = static_cast<int32_t>(1 + engine() % 300),
              .arithmetic = engine() % 4 == 0 ? Arithmetic::generation : Arithmetic::prompt};
  return prompts;
}

/// The sequence of a batch that has `row`.
const BatchSequence& sequence_of(const Batch& batch, int32_t row) {
  return *std::ranges::find_if(batch.sequences, [row](const BatchSequence& each) {
    return row >= each.row_begin && row < each.row_begin + each.row_count;
  });
}

/// The number of times that each row must be covered: once in a prompt, else never.
std::vector<int> expected_cover(const Batch& batch) {
  std::vector<int> cover(batch.tokens.size());
  for (const BatchSequence& sequence : batch.sequences)
    if (sequence.arithmetic == Arithmetic::prompt)
      std::fill_n(cover.begin() + sequence.row_begin, sequence.row_count, 1);
  return cover;
}

TEST(DeltaPlan, ChunksCoverPromptsAtAbsolutePositions) {
  std::mt19937 engine(1);
  for (int round = 0; round < 500; ++round) {
    const Batch batch = batch_of(random_prompts(engine));
    const DeltaPlan plan = DeltaPlan::of(batch, 1 + static_cast<int32_t>(engine() % 40));
    std::vector<int> cover(batch.tokens.size());
    for (const DeltaChunk& chunk : plan.chunks) {
      const BatchSequence& sequence = sequence_of(batch, chunk.row_begin);
      const int32_t first = sequence.kv_begin + chunk.row_begin - sequence.row_begin;
      EXPECT_EQ(first / kDeltaChunkTokens, (first + chunk.rows - 1) / kDeltaChunkTokens);
      EXPECT_EQ(chunk.history, chunk.row_begin - sequence.row_begin);
      EXPECT_EQ(plan.sequences[static_cast<size_t>(chunk.sequence)].state_in, sequence.state_in);
      for (int32_t i = 0; i < chunk.rows; ++i) ++cover[static_cast<size_t>(chunk.row_begin + i)];
    }
    EXPECT_EQ(cover, expected_cover(batch));
  }
}

/// A run begins with the state of its sequence, or with what the run before it left.
TEST(DeltaPlan, RunsPassStatesFromGroupToGroup) {
  std::mt19937 engine(2);
  for (int round = 0; round < 500; ++round) {
    const Batch batch = batch_of(random_prompts(engine));
    const DeltaPlan plan = DeltaPlan::of(batch, 1 + static_cast<int32_t>(engine() % 7));
    int32_t next = 0;
    for (const DeltaGroup& group : plan.groups) {
      EXPECT_EQ(group.chunk_begin, next);
      for (int32_t i = 0; i < group.run_count; ++i) {
        const DeltaRun& run = plan.runs[static_cast<size_t>(group.run_begin + i)];
        EXPECT_EQ(group.chunk_begin + run.chunk_begin, next);
        const int32_t index = plan.chunks[static_cast<size_t>(next)].sequence;
        const DeltaSequence& sequence = plan.sequences[static_cast<size_t>(index)];
        EXPECT_EQ(run.state_in,
                  next == sequence.chunk_begin ? sequence.state_in : sequence.state_out);
        EXPECT_EQ(run.state_out, sequence.state_out);
        next += run.chunk_count;
        EXPECT_LE(next, sequence.chunk_begin + sequence.chunk_count);
      }
      EXPECT_EQ(next, group.chunk_begin + group.chunk_count);
    }
    EXPECT_EQ(next, static_cast<int32_t>(plan.chunks.size()));
  }
}

TEST(DeltaPlan, StaysWithinItsBounds) {
  std::mt19937 engine(3);
  for (int round = 0; round < 500; ++round) {
    const Batch batch = batch_of(random_prompts(engine));
    const DeltaPlan plan = DeltaPlan::of(batch);
    const auto sequences = static_cast<int64_t>(plan.sequences.size());
    const int64_t chunks = delta_chunks_max(batch.rows(), sequences);
    EXPECT_LE(static_cast<int64_t>(plan.chunks.size()), chunks);
    EXPECT_LE(static_cast<int64_t>(plan.runs.size()), delta_runs_max(chunks, sequences));
    EXPECT_LE(static_cast<int64_t>(flash_tiles(batch).size()), chunks + sequences);
  }
}

/// The chunk that ends with a snapshot's row names its slot, and `next_keep` leads from one chunk
/// that is kept to the next.
TEST(DeltaPlan, KeepsSnapshotsAndEnds) {
  Batch batch = batch_of({{.kv_begin = 64, .rows = 300}});
  batch.snapshots = {{.row = 63, .slot = 7}, {.row = 191, .slot = 8}};
  const DeltaPlan plan = DeltaPlan::of(batch);
  ASSERT_EQ(plan.chunks.size(), 5U);
  EXPECT_EQ(plan.chunks[0].snapshot, 7);
  EXPECT_EQ(plan.chunks[1].snapshot, -1);
  EXPECT_EQ(plan.chunks[2].snapshot, 8);
  EXPECT_EQ(plan.sequences[0].first_keep, 0);
  EXPECT_EQ(plan.chunks[0].next_keep, 2);
  EXPECT_EQ(plan.chunks[1].next_keep, 1);
  EXPECT_EQ(plan.chunks[2].next_keep, 2);
  EXPECT_EQ(plan.chunks[3].next_keep, 1);
}

TEST(FlashTiles, CoverPromptsLongestFirst) {
  std::mt19937 engine(4);
  for (int round = 0; round < 500; ++round) {
    const Batch batch = batch_of(random_prompts(engine));
    const std::vector<FlashTile> tiles = flash_tiles(batch);
    EXPECT_TRUE(std::ranges::is_sorted(tiles, std::greater(), &FlashTile::index));
    std::vector<int> cover(batch.tokens.size());
    for (const FlashTile& tile : tiles) {
      const BatchSequence& sequence = sequence_of(batch, tile.row + tile.begin);
      EXPECT_EQ(tile.page_begin, sequence.page_begin);
      EXPECT_EQ(tile.row - sequence.row_begin, 64 * tile.index - sequence.kv_begin);
      for (int32_t i = tile.begin; i < tile.end; ++i) ++cover[static_cast<size_t>(tile.row + i)];
    }
    EXPECT_EQ(cover, expected_cover(batch));
  }
}

}  // namespace
}  // namespace nibble::cuda
