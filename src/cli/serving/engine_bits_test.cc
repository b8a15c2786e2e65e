// Pebble through the engine on the CPU and on a card, exact mode: token ids and the bits of their
// log-probabilities do not depend on the batch, the slot, the cut of the prompt, the prefix cache,
// preemption or the host tier. Every case is compared with the sequences alone. Without a card its
// half is skipped.
#include "cli/testing/engine_bits.h"

namespace nibble::engine_bits {

TEST_P(EngineBits, InBatchesOfAnySize) {
  std::vector<int> counts = {2, 7, 64};
  if (on_card()) counts = {1, 2, 3, 4, 6, 8, 9, 12, 16, 20, 24, 31, 32, 33, 40, 48, 56, 63, 64};
  for (const int count : counts) {
    SCOPED_TRACE(count);
    expect_alone(run({.count = count, .sequences_max = count, .pages = 480}).answers, count);
  }
  expect_alone(run({.count = 9, .sequences_max = 4, .arrive = 1}).answers, 9);  // other slots
}

TEST_P(EngineBits, InPassesOf65To256Rows) {
  std::vector<int> counts = {130};
  if (on_card()) counts = {65, 80, 81, 100, 128, 129, 160, 192, 193, 256};
  Answers expected;
  for (int i = 0; i < counts.back(); ++i)
    expected[static_cast<uint64_t>(i) + 1] = alone().at(static_cast<uint64_t>(distinct(i)) + 1);
  for (const int count : counts) {
    SCOPED_TRACE(count);
    const Outcome together =
        run({.count = count, .sequences_max = count, .rows = 8192, .pages = 1024, .arrive = 256});
    expect_same(together.answers, count, expected);
    EXPECT_EQ(together.rows_most, count);
  }
}

TEST_P(EngineBits, ManyChoicesOfOnePrompt) {
  const Answers& expected = alone(9, make_choices);
  const Outcome together = run({.count = 9, .sequences_max = 5, .requests = make_choices});
  expect_same(together.answers, 9, expected);
  EXPECT_GT(together.cache.hits, 0);
}

TEST_P(EngineBits, LongPrompts) {
  constexpr int kCount = 2;
  constexpr int32_t kContext = 8192;
  // A card cuts a history into parts by its length; a CPU does not, and is slow with a long one.
  const Requests requests = on_card() ? make_long_prompts<4200> : make_long_prompts<2100>;
  const Answers& expected = alone(kCount, requests, kContext);
  const Outcome together =
      run({.count = kCount, .chunk = 192, .requests = requests, .context_max = kContext});
  expect_same(together.answers, kCount, expected);
}

TEST_P(EngineBits, LongAnswers) {
  constexpr int kCount = 3;
  const Answers& expected = alone(kCount, make_long_answers);
  const Outcome together = run({.count = kCount, .requests = make_long_answers});
  expect_same(together.answers, kCount, expected);
  EXPECT_EQ(together.answers.at(1).tokens.size(), static_cast<size_t>(kLongTokens));
  if (on_card()) {
    EXPECT_GT(together.engine.passes_ahead, kLongTokens / 2);
  }
}

TEST_P(EngineBits, HoweverPromptsAreCut) {
  for (const int32_t chunk : {1, 128, 512, 0}) {
    SCOPED_TRACE(chunk);
    expect_alone(run({.chunk = chunk, .arrive = 1}).answers, 6);
  }
}

TEST_P(EngineBits, WhateverThePrefixCacheHolds) {
  expect_alone(run({.cache = CacheMode::off}).answers, 6);
  const Outcome warm = run({.rounds = 2});
  expect_alone(warm.answers, 6);
  EXPECT_GE(warm.cache.hits, 5);
  const Outcome tight = run({.count = 9, .pages = 12, .snapshots = 3, .rounds = 2});
  expect_alone(tight.answers, 9);
  EXPECT_GT(tight.cache.pages_evicted + tight.cache.snapshots_evicted, 0);
}

TEST_P(EngineBits, RestoredFromTheHostTier) {
  const Outcome restored = run(short_of_pages(3));
  expect_alone(restored.answers, 9);
  EXPECT_GT(restored.cache.pages_loaded, 0);
  EXPECT_GT(restored.cache.states_loaded, 0);
}

TEST_P(EngineBits, PreemptedAtEveryStep) {
  for (int step = 0; step < kTokens + 5; ++step) {
    SCOPED_TRACE(step);
    const Outcome swapped =
        run({.count = 3, .chunk = 64, .host_pages = 64, .host_slots = 8, .preempt_step = step});
    expect_alone(swapped.answers, 3);
    const Outcome restarted = run({.count = 3, .chunk = 64, .preempt_step = step});
    expect_alone(restarted.answers, 3);  // no host memory
    if (step > 0 && step < kTokens) {
      EXPECT_GT(swapped.engine.swaps_in, 0);
      EXPECT_GT(restarted.engine.recomputes, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, EngineBits, testing::Values("cpu", "cuda"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace nibble::engine_bits
