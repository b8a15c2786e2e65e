// Passes that begin before the tokens of the pass before are read: the same tokens, logprob bits
// and counts as without, however and whenever sequences end. What random lives of it must obey is
// in simulation.h.
#include <gtest/gtest.h>

#include <bit>

#include "engine/testing/core_fixture.h"
#include "engine/testing/held_up.h"

namespace nibble {
namespace {

constexpr FakeBackend::Model kAhead{.chooses = true, .overlaps = true};

/// Different prompts, ways of sampling, log-probabilities and ends.
std::vector<SequenceRequest> requests_of_all_kinds() {
  std::mt19937 random(7);
  std::vector<SequenceRequest> requests;
  for (uint64_t id = 1; id <= 9; ++id) {
    SequenceRequest request = greedy(id, random_prompt(random, 5 + 13 * static_cast<int>(id)),
                                     static_cast<int32_t>(7 * id));
    if (id % 2 == 0) request.sampling.temperature = 1.0;
    if (id % 3 == 0) request.sampling.top_logprobs = 4;
    if (id % 4 == 0) request.sampling.presence_penalty = 1.0;
    if (id % 5 == 0) request.min_tokens = 9;
    if (id % 2 == 1) request.stop_ids = {static_cast<int32_t>(id), 10, 20, 30, 40, 50};
    request.sampling.seed = id;
    requests.push_back(std::move(request));
  }
  return requests;
}

bool same_bits(const PositionLogprobs& a, const PositionLogprobs& b) {
  const auto same = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.token == y.token &&
           std::bit_cast<uint64_t>(x.logprob) == std::bit_cast<uint64_t>(y.logprob);
  };
  return a.rank == b.rank && same(a.chosen, b.chosen) && std::ranges::equal(a.top, b.top, same);
}

TEST(EngineAhead, GivesTheSameTokensBitsAndCounts) {
  CoreFixture in_order;
  CoreFixture ahead(CoreFixture::small(), kAhead);
  for (CoreFixture* fixture : {&in_order, &ahead}) {
    for (SequenceRequest& request : requests_of_all_kinds())
      fixture->core->submit(std::move(request));
    fixture->run();
  }
  EXPECT_EQ(in_order.core->counters().passes_ahead, 0);
  EXPECT_GT(ahead.core->counters().passes_ahead, ahead.core->counters().passes / 2);
  EXPECT_GT(ahead.core->counters().rows_in_vain, 0);
  for (auto& [id, expected] : in_order.outcomes) {
    const CoreFixture::Outcome& found = ahead.outcomes[id];
    EXPECT_EQ(found.tokens, expected.tokens) << id;
    EXPECT_EQ(found.finished->reason, expected.finished->reason) << id;
    EXPECT_EQ(found.finished->stop_token, expected.finished->stop_token) << id;
    EXPECT_EQ(found.finished->completion_tokens, expected.finished->completion_tokens) << id;
    EXPECT_TRUE(std::ranges::equal(found.logprobs, expected.logprobs, same_bits)) << id;
  }
}

/// A pass is begun before the tokens of the one before are told, and no token is told a step later
/// than it could be.
TEST(EngineAhead, APassIsAlwaysUnderWay) {
  CoreFixture fixture(CoreFixture::small(), kAhead);
  fixture.core->submit(greedy(1, {1, 2, 3}, 10));
  fixture.core->submit(greedy(2, {4, 5}, 30));
  size_t said = 0;
  while (!fixture.core->idle()) {
    const int passes = fixture.backend.passes;
    fixture.take(fixture.core->step());
    EXPECT_LE(fixture.backend.passes, passes + 1);
    const size_t now = fixture.outcomes[2].tokens.size();
    if (said > 2 && now > 2 && now < 30) {
      EXPECT_EQ(fixture.backend.passes, static_cast<int>(now) + 1) << now;
    }
    said = now;
  }
  fixture.run();
  EXPECT_EQ(fixture.backend.passes, 30);  // the last token of each is known to be the last
  EXPECT_EQ(fixture.core->counters().rows_in_vain, 0);
}

/// Whoever is cancelled or late between two steps has a row in the pass under way.
TEST(EngineAhead, SequencesEndBetweenSteps) {
  double now_ms = 0.0;
  EngineSettings settings = CoreFixture::small();
  settings.clock_ms = [&now_ms] { return now_ms; };
  CoreFixture fixture(settings, kAhead);
  const SequenceRequest stays = greedy(1, {1, 2, 3}, 60);
  const std::vector<int32_t> expected = expected_tokens(stays);
  fixture.core->submit(greedy(1, {1, 2, 3}, 60));
  fixture.core->submit(greedy(2, {3, 4}, 60));
  SequenceRequest late = greedy(3, {5, 6}, 60);
  late.urgency.deadline_ms = 20.0;
  fixture.core->submit(std::move(late));
  for (int i = 0; i < 12; ++i) fixture.take(fixture.core->step()), ++now_ms;
  EXPECT_GT(fixture.core->counters().passes_ahead, 0);
  fixture.core->cancel(2);
  for (int i = 0; i < 12; ++i) fixture.take(fixture.core->step()), ++now_ms;
  EXPECT_EQ(fixture.outcomes[2].finished->reason, FinishReason::cancelled);
  EXPECT_EQ(fixture.outcomes[2].finished->completion_tokens,
            static_cast<int32_t>(fixture.outcomes[2].tokens.size()));
  EXPECT_EQ(fixture.outcomes[3].finished->reason, FinishReason::deadline);
  EXPECT_EQ(fixture.core->counters().rows_in_vain, 2);
  fixture.run();
  EXPECT_EQ(fixture.outcomes[1].tokens, expected);
}

/// All rows of the pass under way are void, and nobody reads it until there is work again, though
/// the backend sleeps meanwhile.
TEST(EngineAhead, TheLastPassMayBeInVain) {
  CoreFixture fixture(CoreFixture::small(), kAhead);
  fixture.core->submit(greedy(1, {1, 2, 3}, 60));
  for (int i = 0; i < 9; ++i) fixture.take(fixture.core->step());
  fixture.core->cancel_all();
  EXPECT_TRUE(fixture.core->idle());
  fixture.core->forget_caches();
  EXPECT_TRUE(fixture.backend.sleep().ok());
  EXPECT_TRUE(fixture.backend.wake().ok());
  SequenceRequest stops = greedy(2, {7, 8, 9}, 60);
  const std::vector<int32_t> free_run = expected_tokens(stops);
  stops.stop_ids = {free_run[20]};
  const std::vector<int32_t> expected = expected_tokens(stops);
  fixture.core->submit(std::move(stops));
  fixture.run();
  EXPECT_EQ(fixture.outcomes[2].tokens, expected);
  const SequenceRequest next = greedy(3, {5}, 12);
  fixture.core->submit(greedy(3, {5}, 12));
  fixture.run();
  EXPECT_EQ(fixture.outcomes[3].tokens, expected_tokens(next));
}

TEST(EngineAhead, ACardMayBeLostUnderWay) {
  CoreFixture fixture(CoreFixture::small(), kAhead);
  fixture.core->submit(greedy(1, {1, 2, 3}, 60));
  fixture.core->submit(greedy(2, {3, 4}, 60));
  fixture.backend.passes_left = 11;
  for (int i = 0; i < 20 && !fixture.core->idle(); ++i) fixture.take(fixture.core->step());
  for (const uint64_t id : {1, 2}) {
    EXPECT_EQ(fixture.outcomes[id].finished->reason, FinishReason::error);
    EXPECT_LT(fixture.outcomes[id].tokens.size(), 12U);
  }
}

/// With one seat the others wait for an end, and see it in the step after it.
TEST(EngineAhead, OthersMayWait) {
  EngineSettings settings = CoreFixture::small();
  settings.sequences_max = 1;
  CoreFixture fixture(settings, kAhead);
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t id = 1; id <= 3; ++id) {
    SequenceRequest request = greedy(id, {static_cast<int32_t>(id), 2}, 40);
    expected.push_back(expected_tokens(request));
    fixture.core->submit(std::move(request));
  }
  fixture.run();
  for (uint64_t id = 1; id <= 3; ++id)
    EXPECT_EQ(fixture.outcomes[id].tokens, expected[static_cast<size_t>(id) - 1]);
  EXPECT_GT(fixture.core->counters().passes_ahead, 90);
  EXPECT_EQ(fixture.core->counters().rows_in_vain, 0);
}

TEST(EngineAhead, PredictionsLeaveOutWhoEndedUnderWay) {
  EngineSettings settings = CoreFixture::small();
  settings.clock_ms = [] { return 0.0; };  // so that no pass teaches what passes cost
  CoreFixture fixture(settings, kAhead);
  CoreFixture alone(settings, kAhead);
  fixture.core->submit(greedy(1, {1, 2, 3}, 40));
  fixture.core->submit(greedy(2, {3, 4}, 10));
  alone.core->submit(greedy(1, {1, 2, 3}, 40));
  for (int i = 0; i < 20; ++i) {
    fixture.take(fixture.core->step());
    alone.take(alone.core->step());
    const bool both = !fixture.outcomes[2].finished;
    const double more_ms = fixture.core->first_token_ms(64) - alone.core->first_token_ms(64);
    EXPECT_EQ(more_ms > 0.0, both) << i;
  }
  EXPECT_TRUE(fixture.outcomes[2].finished);
  EXPECT_GT(fixture.core->counters().passes_ahead, 15);
}

/// A prompt that comes while passes overlap is computed in the step after the next.
TEST(EngineAhead, ANewcomerIsNotKeptWaiting) {
  CoreFixture fixture(CoreFixture::small(), kAhead);
  fixture.core->submit(greedy(1, {1, 2, 3}, 60));
  for (int i = 0; i < 12; ++i) fixture.take(fixture.core->step());
  fixture.core->submit(greedy(2, {3, 4}, 5));
  for (int i = 0; i < 2; ++i) fixture.take(fixture.core->step());
  EXPECT_EQ(fixture.outcomes[2].tokens.size(), 1U);
  fixture.run();
  EXPECT_EQ(fixture.outcomes[2].tokens, expected_tokens(greedy(2, {3, 4}, 5)));
}

/// Its layers are computed when its mask turns out to be late, so it begins again.
TEST(EngineAhead, NobodyWaitsForAMaskThatIsLate) {
  EngineSettings settings = CoreFixture::small();
  settings.mask_patience_ms = 5.0;
  CoreFixture fixture(settings, kAhead);
  std::mt19937 random(5);
  SequenceRequest held = greedy(1, random_prompt(random, 20), 30);
  SequenceRequest quick = greedy(2, random_prompt(random, 20), 40);
  const std::vector<int32_t> expected = expected_tokens(held);
  const std::vector<int32_t> others = expected_tokens(quick);
  bool let = false;
  held.constraint = std::make_unique<HeldUp>(8, let);
  fixture.core->submit(std::move(held));
  fixture.core->submit(std::move(quick));
  for (int i = 0; i < 100 && !fixture.outcomes[2].finished; ++i) fixture.take(fixture.core->step());
  EXPECT_EQ(fixture.outcomes[2].tokens, others);
  EXPECT_EQ(fixture.outcomes[1].tokens.size(), 8U);
  EXPECT_EQ(fixture.core->counters().masks_late, 1);
  let = true;
  fixture.run();
  EXPECT_EQ(fixture.outcomes[1].tokens, expected);
}

/// To begin again costs the whole answer so far, so it happens to a sequence only once.
TEST(EngineAhead, AMaskIsLateOnlyOnce) {
  EngineSettings settings = CoreFixture::small();
  settings.mask_patience_ms = 0.0;
  CoreFixture fixture(settings, kAhead);
  SequenceRequest held = greedy(1, {1, 2, 3}, 40);
  const std::vector<int32_t> expected = expected_tokens(held);
  bool let = false;
  held.constraint = std::make_unique<HeldUp>(8, let);
  fixture.core->submit(std::move(held));
  size_t said = 0;
  int steps = 0;
  for (; !fixture.core->idle() && steps < 1000; ++steps) {
    fixture.take(fixture.core->step());  // each token that comes later has to be waited for
    let = fixture.outcomes[1].tokens.size() == said;
    said = fixture.outcomes[1].tokens.size();
  }
  EXPECT_EQ(fixture.core->counters().masks_late, 1);
  EXPECT_EQ(fixture.outcomes[1].tokens, expected);
}

}  // namespace
}  // namespace nibble
