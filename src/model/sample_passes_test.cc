// Passes of samples: every row once and in order, short samples together, long ones alone, slots
// fresh where a sample begins, pools large enough.
#include "model/sample_passes.h"

#include <gtest/gtest.h>

#include <random>

#include "model/forward.h"

namespace nibble {
namespace {

/// Walks the passes row by row as one who knows only the lengths.
void expect_sound(const std::vector<int64_t>& lengths, const PassLimits& limits) {
  const std::vector<SamplePass> passes = sample_passes(lengths, limits);
  const PoolSizes pools = pools_for(passes, limits);
  ModelConfig config;
  config.vocab_rows = 1;
  size_t sample = 0;
  int64_t done = 0;  // tokens of that sample
  int64_t row = 0;
  for (const SamplePass& pass : passes) {
    ASSERT_EQ(pass.first_row, row);
    ASSERT_LE(pass.batch.rows(), limits.rows);
    ASSERT_LE(static_cast<int64_t>(pass.batch.sequences.size()), limits.sequences);
    validate_batch(pass.batch, config, pools);
    std::vector<int32_t> fresh;
    std::vector<bool> taken(static_cast<size_t>(pools.pages));
    for (const BatchSequence& sequence : pass.batch.sequences) {
      ASSERT_EQ(sequence.kv_begin, done);
      ASSERT_EQ(sequence.state_in, sequence.state_out);
      if (done == 0) fresh.push_back(sequence.state_in);
      if (sequence.row_count < lengths[sample])
        ASSERT_EQ(pass.batch.sequences.size(), 1U) << "a cut sample shares a pass";
      if (done + sequence.row_count < lengths[sample])
        ASSERT_EQ(sequence.row_count % kPageTokens, 0);
      for (int32_t page = 0; page < sequence.page_count; ++page) {
        const auto id =
            static_cast<size_t>(pass.batch.pages[static_cast<size_t>(sequence.page_begin + page)]);
        ASSERT_FALSE(taken[id]);
        taken[id] = true;
      }
      for (int32_t t = 0; t < sequence.row_count; ++t)
        for (int32_t axis = 0; axis < 3; ++axis)
          ASSERT_EQ(pass.batch.positions[static_cast<size_t>(axis * pass.batch.rows() +
                                                             sequence.row_begin + t)],
                    done + t);
      done += sequence.row_count;
      row += sequence.row_count;
      if (done == lengths[sample]) {
        done = 0;
        ++sample;
      }
    }
    ASSERT_EQ(pass.fresh_slots, fresh);
  }
  ASSERT_EQ(sample, lengths.size());
  ASSERT_EQ(done, 0);
}

TEST(SamplePasses, HoldEveryRowOnce) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const PassLimits limits{.rows = kPageTokens * (1 + static_cast<int64_t>(random() % 4)),
                            .sequences = 1 + static_cast<int64_t>(random() % 5)};
    std::vector<int64_t> lengths(1 + random() % 20);
    for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random() % 600);
    expect_sound(lengths, limits);
  }
}

TEST(SamplePasses, ShortSamplesShareOne) {
  const std::vector<int64_t> lengths = {100, 100, 56, 1};
  const auto passes = sample_passes(lengths, {.rows = 256, .sequences = 8});
  ASSERT_EQ(passes.size(), 2U);
  EXPECT_EQ(passes[0].batch.rows(), 256);
  EXPECT_EQ(sample_passes(lengths, {.rows = 256, .sequences = 2}).size(), 2U);
  EXPECT_EQ(sample_passes(lengths, {.rows = 256, .sequences = 1}).size(), 4U);
}

}  // namespace
}  // namespace nibble
