// Requests that no room is enough for are refused with the numbers; and one that runs gives its
// seat to a more urgent one by way of the host, where that has room.
#include <gtest/gtest.h>

#include "engine/testing/core_fixture.h"

namespace nibble {
namespace {

TEST(EngineRoom, RefusalsSayWhatWouldBeTaken) {
  CoreFixture fixture;
  const auto message = [&](const SequenceRequest& request) {
    const auto result = fixture.core->admissible(request);
    return result.ok() ? std::string() : result.error().message;
  };
  const int32_t vocab = FakeBackend::kVocab;
  EXPECT_EQ(message(greedy(1, {}, 5)), "the prompt is empty: expected at least one token");
  EXPECT_EQ(message(greedy(1, {0, vocab - 1}, 5)), "");
  EXPECT_EQ(message(greedy(1, {0, vocab}, 5)),
            concat("a prompt token is not in the vocabulary: expected 0 to ", vocab - 1, ", found ",
                   vocab));
  EXPECT_EQ(message(greedy(1, {1}, 1)), "");
  EXPECT_EQ(message(greedy(1, {1}, 0)), "max_tokens: expected at least 1, found 0");
  EXPECT_EQ(message(greedy(1, {1, 2}, 1022)), "");
  EXPECT_EQ(message(greedy(1, {1, 2}, 1023)),
            "the request is longer than the context: expected at most 1024 tokens, found 2 of "
            "prompt and 1023 to generate; shorten the prompt or lower max_tokens");
  EngineSettings tight = CoreFixture::small();
  tight.pools.pages = 2;
  CoreFixture cramped(tight);
  EXPECT_EQ(cramped.core->admissible(greedy(1, {1}, 129)).error().message,
            "the request can never fit the cache: expected at most 2 pages of 64, found 130 "
            "tokens; raise --kv-cache-memory-bytes");
  const auto with_positions = [&](std::vector<std::array<int32_t, 3>> positions) {
    SequenceRequest request = greedy(1, {1, 2, 3}, 5);
    request.positions = std::move(positions);
    return message(request);
  };
  EXPECT_EQ(with_positions({{0, 0, 0}, {2, 0, 1}, {0, 0, 2}}), "");
  EXPECT_EQ(with_positions({{0, 0, 0}, {1, 1, 1}}), "prompt positions: expected 3, found 2");
  EXPECT_EQ(with_positions({{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {2, 2, 2}}),
            "prompt positions: expected 3, found 4");
  for (size_t axis = 0; axis < 3; ++axis)
    for (const int32_t wrong : {-1, 3}) {
      std::array<int32_t, 3> position = {2, 2, 2};
      position[axis] = wrong;
      EXPECT_EQ(with_positions({{0, 0, 0}, {1, 1, 1}, position}),
                concat("a prompt position: expected 0 to 2, found ", wrong));
    }
}

/// The one that runs goes to the host and comes back, if there is room for its pages and its state;
/// else the more urgent one waits for its end.
TEST(EngineRoom, AMoreUrgentOneTakesASeatWhereTheHostHasRoom) {
  struct Case {
    int32_t host_pages, host_slots;
    bool swaps;
  };
  for (const Case& c : {Case{8, 2, true}, Case{0, 2, false}, Case{8, 0, false}}) {
    SCOPED_TRACE(concat(c.host_pages, " pages and ", c.host_slots, " slots on the host"));
    EngineSettings settings = CoreFixture::small();
    settings.sequences_max = 1;
    settings.pools.host_pages = c.host_pages;
    settings.pools.host_slots = c.host_slots;
    CoreFixture fixture(settings);
    std::mt19937 random(21);
    std::vector<SequenceRequest> asked;
    for (uint64_t id = 1; id <= 2; ++id) {
      asked.push_back(greedy(id, random_prompt(random, 70), 20));
      SequenceRequest request = greedy(id, asked.back().prompt, 20);
      request.urgency.priority = id == 1 ? 1 : 0;
      fixture.core->submit(std::move(request));
      for (int i = 0; i < 5; ++i) fixture.take(fixture.core->step());
    }
    EXPECT_EQ(fixture.core->phase(1), c.swaps ? Phase::swapped : Phase::decode);
    EXPECT_EQ(fixture.core->phase(2), c.swaps ? Phase::decode : Phase::waiting);
    fixture.run();
    for (const SequenceRequest& request : asked)
      EXPECT_EQ(fixture.outcomes[request.id].tokens, expected_tokens(request)) << request.id;
    const EngineCounters counters = fixture.core->counters();
    EXPECT_EQ(counters.swaps_out, c.swaps ? 1 : 0);
    EXPECT_EQ(counters.swaps_in, c.swaps ? 1 : 0);
    EXPECT_EQ(counters.recomputes, 0);
  }
}

}  // namespace
}  // namespace nibble
