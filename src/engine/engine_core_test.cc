// The serving loop over the fake model, by example. What random lives of it must obey is in
// simulation.h.
#include "engine/engine_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/testing/core_fixture.h"

namespace nibble {
namespace {

TEST(EngineCore, ContinuesOneSequence) {
  CoreFixture fixture;
  std::mt19937 random(1);
  for (const int size : {1, 63, 64, 65, 131, 132, 133, 400}) {
    const auto request = greedy(static_cast<uint64_t>(size), random_prompt(random, size), 70);
    const auto expected = expected_tokens(request);
    fixture.core->submit(greedy(request.id, request.prompt, 70));
    fixture.run();
    const CoreFixture::Outcome& outcome = fixture.outcomes[request.id];
    EXPECT_EQ(outcome.tokens, expected) << size;
    EXPECT_EQ(outcome.finished->reason, FinishReason::length);
    EXPECT_EQ(outcome.finished->prompt_tokens, size);
    EXPECT_EQ(outcome.finished->completion_tokens, 70);
  }
  EXPECT_LE(fixture.backend.rows_largest, 132);
}

TEST(EngineCore, StopsAtStopIdsButNotBeforeMinTokens) {
  CoreFixture fixture;
  std::mt19937 random(2);
  auto request = greedy(1, random_prompt(random, 10), 50);
  const auto free_run = expected_tokens(request);
  request.stop_ids = {free_run[7], free_run[20]};
  const size_t first = static_cast<size_t>(std::ranges::find_first_of(free_run, request.stop_ids) -
                                           free_run.begin());
  auto late = greedy(2, request.prompt, 50);
  late.stop_ids = request.stop_ids;
  late.min_tokens = static_cast<int32_t>(first) + 3;
  fixture.core->submit(std::move(request));
  fixture.core->submit(std::move(late));
  fixture.run();
  const CoreFixture::Outcome& outcome = fixture.outcomes[1];
  EXPECT_EQ(outcome.tokens, std::vector<int32_t>(free_run.begin(), free_run.begin() + first));
  EXPECT_EQ(outcome.finished->reason, FinishReason::stop);
  EXPECT_EQ(outcome.finished->stop_token, free_run[first]);
  EXPECT_EQ(outcome.finished->completion_tokens, static_cast<int32_t>(first) + 1);
  EXPECT_GE(fixture.outcomes[2].tokens.size(), first + 3);
}

/// Ends the sequence after a given token count, from inside the stream.
class StopAfter final : public TokenConstraint {
 public:
  StopAfter(size_t count, size_t keep_of_last) : left_(count), keep_(keep_of_last) {}
  MaskState mask(std::span<const int32_t>, std::span<uint32_t> bits) override {
    for (uint32_t& word : bits) word &= 0x55555555U;  // even ids
    return MaskState::limited;
  }
  std::optional<size_t> accept(std::span<const int32_t> tokens) override {
    left_ -= tokens.size();
    if (left_ > 0) return std::nullopt;
    return keep_;
  }
  void rollback(size_t count) override { left_ += count; }

 private:
  size_t left_;
  size_t keep_;
};

TEST(EngineCore, ObeysAConstraint) {
  CoreFixture fixture;
  for (const size_t keep : {0, 1}) {
    auto request = greedy(keep, {1, 2, 3}, 50);
    request.constraint = std::make_unique<StopAfter>(5, keep);
    fixture.core->submit(std::move(request));
    fixture.run();
    const CoreFixture::Outcome& outcome = fixture.outcomes[keep];
    EXPECT_EQ(outcome.tokens.size(), 4 + keep);
    for (const int32_t token : outcome.tokens) EXPECT_EQ(token % 2, 0);
    EXPECT_EQ(outcome.finished->reason, FinishReason::stop);
  }
}

TEST(EngineCore, RefusesWhatCanNeverRun) {
  CoreFixture fixture;
  const auto code = [&](SequenceRequest request) {
    const auto result = fixture.core->admissible(request);
    return result.ok() ? std::optional<ErrorCode>() : result.error().code;
  };
  EXPECT_EQ(code(greedy(1, {}, 5)), ErrorCode::invalid_argument);
  EXPECT_EQ(code(greedy(1, {1, FakeBackend::kVocab}, 5)), ErrorCode::invalid_argument);
  EXPECT_EQ(code(greedy(1, {-1}, 5)), ErrorCode::invalid_argument);
  EXPECT_EQ(code(greedy(1, {1}, 0)), ErrorCode::invalid_argument);
  EXPECT_EQ(code(greedy(1, {1}, 1023)), std::nullopt);
  EXPECT_EQ(code(greedy(1, {1}, 1024)), ErrorCode::invalid_argument);
  EXPECT_EQ(code(greedy(1, {1}, std::numeric_limits<int32_t>::max())), ErrorCode::invalid_argument);
  EngineSettings tight = CoreFixture::small();
  tight.pools.pages = 2;
  CoreFixture cramped(tight);
  EXPECT_TRUE(cramped.core->admissible(greedy(1, {1}, 128)).ok());  // 128 cached at most
  EXPECT_EQ(cramped.core->admissible(greedy(1, {1}, 129)).error().code, ErrorCode::no_memory);
}

TEST(EngineCoreDeathTest, AStepFindsAPageOfNoLiveSequence) {
  CoreFixture fixture;
  fixture.core->submit(greedy(1, {1, 2, 3}, 9));
  fixture.take(fixture.core->step());
  Sequence stray;
  ASSERT_EQ(fixture.core->memory().grow(stray, 1, 0.0), Attempt::done);
  EXPECT_DEATH(fixture.core->step(), "has 0 owners and 1 references");
}

TEST(EngineCore, NotANumberEndsThatSequenceOnly) {
  constexpr uint64_t kNanEvery = 100;
  CoreFixture fixture(CoreFixture::small(), kNanEvery);
  std::mt19937 random(3);
  std::vector<SequenceRequest> copies;
  for (uint64_t id = 1; id <= 12; ++id) {
    copies.push_back(greedy(id, random_prompt(random, 30), 40));
    fixture.core->submit(greedy(id, copies.back().prompt, 40));
  }
  fixture.run();
  int failed = 0;
  for (const SequenceRequest& request : copies) {
    const CoreFixture::Outcome& outcome = fixture.outcomes[request.id];
    const auto expected = expected_tokens(request, kNanEvery);
    const bool fails = static_cast<int32_t>(expected.size()) < request.max_tokens;
    failed += fails ? 1 : 0;
    EXPECT_EQ(outcome.finished->reason, fails ? FinishReason::error : FinishReason::length);
    EXPECT_EQ(outcome.finished->error.empty(), !fails);
    EXPECT_EQ(outcome.tokens, expected);
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, 12);
  EXPECT_EQ(fixture.core->counters().not_finite, failed);
}

TEST(EngineCore, NanInAPromptIsNeverPublished) {
  constexpr uint64_t kNanEvery = 150;
  CoreFixture fixture(CoreFixture::small(), kNanEvery);
  std::mt19937 random(7);  // NaN at token 210, in the middle of the prefill
  const auto prompt = random_prompt(random, 600);
  ASSERT_TRUE(expected_tokens(greedy(1, prompt, 1), kNanEvery).empty());
  for (uint64_t id = 1; id <= 2; ++id) {
    fixture.core->submit(greedy(id, prompt, 5));
    for (int i = 0; i < 100 && !fixture.core->idle(); ++i) fixture.take(fixture.core->step());
    EXPECT_EQ(fixture.outcomes[id].finished->reason, FinishReason::error);
    EXPECT_EQ(fixture.outcomes[id].finished->cached_tokens, 0);
  }
}

TEST(EngineCore, ReusesThePromptOfTheTurnBefore) {
  CoreFixture fixture;
  std::mt19937 random(6);
  auto first = greedy(1, random_prompt(random, 300), 40);
  fixture.core->submit(greedy(1, first.prompt, 40));
  for (int i = 0; i < 100 && !fixture.core->idle(); ++i) fixture.take(fixture.core->step());
  EXPECT_EQ(fixture.outcomes[1].finished->cached_tokens, 0);

  auto next = greedy(2, first.prompt, 20);  // the next turn: what was said, and more
  const auto& said = fixture.outcomes[1].tokens;
  next.prompt.insert(next.prompt.end(), said.begin(), said.end());
  const auto more = random_prompt(random, 50);
  next.prompt.insert(next.prompt.end(), more.begin(), more.end());
  const auto expected = expected_tokens(next);
  const int64_t rows_before = fixture.backend.rows_computed;
  auto stranger = greedy(3, next.prompt, 20);
  stranger.cache.salt = 9;
  fixture.core->submit(std::move(next));
  for (int i = 0; i < 100 && !fixture.core->idle(); ++i) fixture.take(fixture.core->step());
  EXPECT_EQ(fixture.outcomes[2].tokens, expected);
  EXPECT_EQ(fixture.outcomes[2].finished->cached_tokens, 256);  // 300 in whole pages
  EXPECT_EQ(fixture.backend.rows_computed - rows_before, 390 - 256 + 19);

  fixture.core->submit(std::move(stranger));
  fixture.run();
  EXPECT_EQ(fixture.outcomes[3].tokens, expected);
  EXPECT_EQ(fixture.outcomes[3].finished->cached_tokens, 0);
}

/// Runs three sequences, of which all that run are preempted before step `at`.
void preempt_all(const EngineSettings& settings, int at, int64_t EngineCounters::*expected) {
  CoreFixture fixture(settings);
  std::mt19937 random(12);
  std::vector<SequenceRequest> copies;
  for (uint64_t id = 1; id <= 3; ++id) {
    copies.push_back(greedy(id, random_prompt(random, 40 + 70 * static_cast<int>(id)), 12));
    fixture.core->submit(greedy(id, copies.back().prompt, 12));
  }
  for (int step = 0; step < at; ++step) fixture.take(fixture.core->step());
  for (uint64_t id = 1; id <= 3; ++id) fixture.core->preempt(id);
  fixture.run();
  for (const SequenceRequest& request : copies)
    EXPECT_EQ(fixture.outcomes[request.id].tokens, expected_tokens(request)) << at;
  EXPECT_GT(fixture.core->counters().*expected, 0) << at;
}

TEST(EngineCore, SwappedSequencesGoOnAsIfNothingHadBeen) {
  EngineSettings settings = CoreFixture::small();
  settings.pools.host_pages = 24;
  settings.pools.host_slots = 4;
  for (int at = 1; at < 10; ++at) preempt_all(settings, at, &EngineCounters::swaps_in);
}

TEST(EngineCore, RestartedSequencesGoOnAsIfNothingHadBeen) {
  for (int at = 1; at < 10; ++at)
    preempt_all(CoreFixture::small(), at, &EngineCounters::recomputes);
}

TEST(EngineCore, AFailedAdmissionGivesBackWhatItTook) {
  EngineSettings settings = CoreFixture::small();
  settings.pools.state_slots = 8;
  for (int failing = 0; failing < 12; ++failing) {
    CoreFixture fixture(settings);
    std::mt19937 random(13);
    const auto prompt = random_prompt(random, 200);
    fixture.core->submit(greedy(1, prompt, 4));
    for (int i = 0; i < 100 && !fixture.core->idle(); ++i) fixture.take(fixture.core->step());
    int call = 0;
    fixture.core->memory().fail_allocations([&] { return call++ == failing; });
    auto longer = greedy(2, prompt, 4);
    const auto more = random_prompt(random, 100);
    longer.prompt.insert(longer.prompt.end(), more.begin(), more.end());
    const auto expected = expected_tokens(longer);
    fixture.core->submit(std::move(longer));
    fixture.run();
    EXPECT_EQ(fixture.outcomes[2].tokens, expected) << failing;
  }
}

TEST(EngineCore, ChoicesOfOnePromptComputeItOnce) {
  EngineSettings settings = CoreFixture::small();
  settings.pools.state_slots = 8;
  CoreFixture fixture(settings);
  std::mt19937 random(11);
  const auto prompt = random_prompt(random, 300);
  const auto choice = [&](uint64_t id) {
    SequenceRequest request = greedy(id, prompt, 10);
    request.sampling.temperature = 1.0;
    request.sampling.choice = static_cast<uint32_t>(id);
    return request;
  };
  for (uint64_t id = 1; id <= 4; ++id) fixture.core->submit(choice(id));
  fixture.run();
  for (uint64_t id = 1; id <= 4; ++id) {
    EXPECT_EQ(fixture.outcomes[id].tokens, expected_tokens(choice(id)));
    EXPECT_EQ(fixture.outcomes[id].finished->cached_tokens, id == 1 ? 0 : 256);
  }
  EXPECT_EQ(fixture.backend.rows_computed, 300 + 3 * (300 - 256) + 4 * 9);
}

TEST(EngineCore, OnlyATwinOfNoWorsePriorityIsWaitedFor) {
  CoreFixture fixture;
  std::mt19937 random(14);
  const auto prompt = random_prompt(random, 300);
  for (const auto& [id, priority] : {std::pair(1, 1), {2, 0}, {3, 1}}) {
    auto request = greedy(static_cast<uint64_t>(id), prompt, 10);
    request.urgency.priority = priority;
    fixture.core->submit(std::move(request));
  }
  fixture.take(fixture.core->step());
  EXPECT_NE(fixture.core->phase(2), Phase::waiting);  // the urgent one does not wait
  EXPECT_EQ(fixture.core->phase(3), Phase::waiting);
  while (fixture.outcomes[2].tokens.empty()) fixture.take(fixture.core->step());
  EXPECT_TRUE(fixture.outcomes[1].tokens.empty());
  fixture.run();
  for (uint64_t id = 1; id <= 3; ++id)
    EXPECT_EQ(fixture.outcomes[id].tokens, expected_tokens(greedy(id, prompt, 10))) << id;
}

/// Pages that the hit itself takes from the cache are not there for the rest of the prompt.
TEST(EngineCore, AnAdmissionThatCannotFitTouchesNothing) {
  EngineSettings settings = CoreFixture::small();
  settings.pools.pages = 4;
  CoreFixture fixture(settings);
  std::mt19937 random(15);
  const auto prompt = random_prompt(random, 130);
  fixture.core->submit(greedy(1, prompt, 5));
  while (!fixture.core->idle()) fixture.take(fixture.core->step());
  SequenceMemory& memory = fixture.core->memory();
  ASSERT_EQ(memory.cache().available_pages(), 4);
  const int32_t slots = memory.cache().available_slots();
  Sequence next;
  next.request = greedy(2, prompt, 190);
  EXPECT_EQ(memory.admit(next, 5, 0.0), Attempt::no_room);  // two of a hit, and three beside two
  EXPECT_EQ(memory.cache().counters().hit_tokens, 0);
  EXPECT_EQ(memory.cache().available_slots(), slots);
  ASSERT_EQ(memory.admit(next, 4, 0.0), Attempt::done);
  EXPECT_EQ(memory.cache().counters().hit_tokens, 128);
  memory.release(next, 0.0);
}

TEST(EngineCore, ACancelledPrefillIsContinuedByTheRetry) {
  CoreFixture fixture;
  std::mt19937 random(7);
  const auto prompt = random_prompt(random, 900);
  fixture.core->submit(greedy(1, prompt, 5));
  for (int i = 0; i < 4; ++i) fixture.take(fixture.core->step());
  ASSERT_TRUE(fixture.outcomes[1].tokens.empty());
  fixture.core->cancel(1);
  auto retry = greedy(2, prompt, 5);
  const auto expected = expected_tokens(retry);
  fixture.core->submit(std::move(retry));
  fixture.run();
  EXPECT_GE(fixture.outcomes[2].finished->cached_tokens, 3 * kPageTokens);
  EXPECT_EQ(fixture.outcomes[2].tokens, expected);
}

TEST(EngineCore, DeadlinesEndSequencesInEveryPhase) {
  EngineSettings settings = CoreFixture::small();
  double now = 1.0;
  settings.clock_ms = [&now] { return now; };
  CoreFixture fixture(settings);
  for (uint64_t id = 1; id <= 6; ++id) {
    auto request = greedy(id, {1, 2, 3}, 200);
    if (id >= 3) request.urgency.deadline_ms = 50.0;
    fixture.core->submit(std::move(request));
  }
  fixture.take(fixture.core->step());
  now = 60.0;
  fixture.take(fixture.core->step());
  for (uint64_t id = 3; id <= 6; ++id)
    EXPECT_EQ(fixture.outcomes[id].finished->reason, FinishReason::deadline) << id;
  fixture.run();
  EXPECT_EQ(fixture.outcomes[1].finished->reason, FinishReason::length);
  EXPECT_EQ(fixture.core->counters().expired, 4);
}

TEST(EngineCore, ADeadlineEndsASwappedOutSequenceInTheStepThatFindsIt) {
  EngineSettings settings = CoreFixture::small();
  settings.pools.host_pages = 24;
  settings.pools.host_slots = 4;
  double now = 1.0;
  settings.clock_ms = [&now] { return now; };
  CoreFixture fixture(settings);
  auto request = greedy(1, {1, 2, 3}, 200);
  request.urgency.deadline_ms = 50.0;
  fixture.core->submit(std::move(request));
  fixture.take(fixture.core->step());
  fixture.core->preempt(1);
  fixture.take(fixture.core->step());
  ASSERT_EQ(fixture.core->phase(1), Phase::swapped);
  const size_t said = fixture.outcomes[1].tokens.size();
  now = 50.0;
  fixture.take(fixture.core->step());
  ASSERT_TRUE(fixture.outcomes[1].finished);
  EXPECT_EQ(fixture.outcomes[1].finished->reason, FinishReason::deadline);
  EXPECT_EQ(fixture.outcomes[1].tokens.size(), said);
  EXPECT_EQ(fixture.core->counters().swaps_in, 0);
}

TEST(EngineCore, PromptLogprobsAreThoseOfEachPromptToken) {
  CoreFixture fixture;
  std::mt19937 random(8);
  auto request = greedy(1, random_prompt(random, 200), 3);
  request.prompt_logprobs = 2;
  const auto prompt = request.prompt;
  fixture.core->submit(greedy(9, prompt, 3));  // leaves the prompt in the cache
  for (int i = 0; i < 100 && !fixture.core->idle(); ++i) fixture.take(fixture.core->step());
  fixture.core->submit(std::move(request));
  fixture.take(fixture.core->step());
  fixture.core->preempt(1);
  fixture.run();
  const CoreFixture::Outcome& outcome = fixture.outcomes[1];
  EXPECT_EQ(outcome.finished->cached_tokens, 0);
  ASSERT_EQ(outcome.prompt_logprobs.size(), prompt.size() - 1);
  FakeBackend::Prefix prefix;
  for (size_t i = 0; i + 1 < prompt.size(); ++i) {
    prefix.add(prompt[i], Arithmetic::prompt);
    const auto expected =
        CoreFixture::sampler().logprobs(FakeBackend::logits_of(prefix.hash()), prompt[i + 1], 2);
    EXPECT_EQ(outcome.prompt_logprobs[i].chosen.token, prompt[i + 1]);
    EXPECT_EQ(outcome.prompt_logprobs[i].chosen.logprob, expected.value().chosen.logprob);
    EXPECT_EQ(outcome.prompt_logprobs[i].top.size(), 2U);
  }
}

TEST(EngineCore, CancelWorksInEveryPhaseWithinOneStep) {
  CoreFixture fixture;
  for (uint64_t id = 1; id <= 5; ++id) fixture.core->submit(greedy(id, {1, 2, 3}, 200));
  fixture.core->submit(greedy(6, std::vector<int32_t>(900, 7), 50));
  fixture.take(fixture.core->step());
  fixture.core->cancel(5);  // waits: four run
  fixture.core->cancel(1);  // decodes
  fixture.take(fixture.core->step());
  EXPECT_EQ(fixture.outcomes[5].finished->reason, FinishReason::cancelled);
  EXPECT_EQ(fixture.outcomes[5].finished->completion_tokens, 0);
  EXPECT_EQ(fixture.outcomes[1].finished->reason, FinishReason::cancelled);
  fixture.take(fixture.core->step());  // 6 is in the middle of its prompt now
  EXPECT_TRUE(fixture.outcomes[6].tokens.empty());
  fixture.core->cancel(6);
  fixture.core->cancel(12345);
  fixture.take(fixture.core->step());
  EXPECT_EQ(fixture.outcomes[6].finished->reason, FinishReason::cancelled);
  fixture.core->cancel_all();
  fixture.run();
}

TEST(EngineCore, TellsHowFarAPromptIs) {
  CoreFixture fixture;
  std::mt19937 random(9);
  const std::vector<int32_t> prompt = random_prompt(random, 400);
  for (const uint64_t id : {1, 2, 3}) {
    SequenceRequest request = greedy(id, prompt, 3);
    request.tells_progress = id != 3;
    fixture.core->submit(std::move(request));
    for (int i = 0; i < 1000 && !fixture.core->idle(); ++i) {
      fixture.take(fixture.core->step());
      // In the middle of the prompt its cache goes: what was told is not told again.
      if (id == 1 && i == 1) fixture.core->preempt(id);
    }
  }
  const auto& first = fixture.outcomes[1].progress;
  ASSERT_GE(first.size(), 5U);
  EXPECT_EQ(first.front().processed, 0);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].total, 400);
    EXPECT_EQ(first[i].cached, 0);
    EXPECT_GE(first[i].elapsed_ms, 0.0);
    if (i > 0) {
      EXPECT_GT(first[i].processed, first[i - 1].processed);
    }
  }
  EXPECT_EQ(first.back().processed, 400);
  const auto& second = fixture.outcomes[2].progress;
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(second[0].cached, fixture.outcomes[2].finished->cached_tokens);
  EXPECT_GT(second[0].cached, 0);
  EXPECT_EQ(second[0].processed, second[0].cached);
  EXPECT_EQ(second[1].cached, second[0].cached);
  EXPECT_EQ(second[1].processed, 400);
  EXPECT_TRUE(fixture.outcomes[3].progress.empty());
}

/// A restart without a prefix cache computes the same chunks again.
TEST(EngineCore, ARestartedPromptTellsOnlyWhatIsNew) {
  EngineSettings settings = CoreFixture::small();
  settings.cache = CacheMode::off;
  settings.clock_ms = [] { return 1.0; };  // costs stay those assumed
  CoreFixture fixture(settings);
  std::mt19937 random(16);
  SequenceRequest request = greedy(1, random_prompt(random, 400), 3);
  request.tells_progress = true;
  fixture.core->submit(std::move(request));
  for (int i = 0; i < 2; ++i) fixture.take(fixture.core->step());
  fixture.core->preempt(1);
  fixture.run();
  EXPECT_EQ(fixture.core->counters().recomputes, 1);
  std::vector<int32_t> processed;
  for (const PromptProgress& told : fixture.outcomes[1].progress)
    processed.push_back(told.processed);
  EXPECT_EQ(processed, (std::vector<int32_t>{0, 128, 256, 384, 400}));
}

}  // namespace
}  // namespace nibble
