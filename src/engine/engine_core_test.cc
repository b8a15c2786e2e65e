// The serving loop over the fake model, by example. What random lives of it must obey is in
// simulation.h.
#include "engine/engine_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/fake_backend.h"

namespace nibble {
namespace {

struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<PositionLogprobs> logprobs;
  std::vector<PositionLogprobs> prompt_logprobs;
  std::vector<PromptProgress> progress;
  std::optional<Finished> finished;
};

class Fixture {
 public:
  explicit Fixture(EngineSettings settings = small(), uint64_t nan_every = 0)
      : backend({.nan_every = nan_every}), settings_(std::move(settings)) {
    EXPECT_TRUE(backend.reserve(settings_.pools).ok());
    core = std::make_unique<EngineCore>(backend, FakeBackend::config(), sampler(), settings_);
  }
  static EngineSettings small() {
    return {.pools = {.pages = 24, .state_slots = 4, .rows_max = 132},
            .sequences_max = 4,
            .context_max = 1024,
            .waiting_max = 100,
            .integrity = IntegrityChecks::every_step};
  }
  static Sampler sampler() {
    return Sampler(FakeBackend::kVocab, Sampler::all_sampleable(FakeBackend::kVocab));
  }
  void take(std::vector<EngineEvent> events) {
    for (EngineEvent& event : events) {
      if (auto* of_prompt = std::get_if<PromptLogprobs>(&event)) {
        Outcome& outcome = outcomes[of_prompt->id];
        EXPECT_EQ(of_prompt->begin, static_cast<int32_t>(outcome.prompt_logprobs.size()) + 1);
        EXPECT_TRUE(outcome.tokens.empty());
        for (auto& entry : of_prompt->positions)
          outcome.prompt_logprobs.push_back(std::move(entry));
      } else if (auto* progress = std::get_if<PromptProgress>(&event)) {
        EXPECT_TRUE(outcomes[progress->id].tokens.empty());
        outcomes[progress->id].progress.push_back(*progress);
      } else if (auto* fresh = std::get_if<NewTokens>(&event)) {
        Outcome& outcome = outcomes[fresh->id];
        EXPECT_FALSE(outcome.finished) << "tokens after the end";
        outcome.tokens.insert(outcome.tokens.end(), fresh->tokens.begin(), fresh->tokens.end());
        for (auto& entry : fresh->logprobs) outcome.logprobs.push_back(std::move(entry));
      } else {
        auto& end = std::get<Finished>(event);
        EXPECT_FALSE(outcomes[end.id].finished) << "finished twice";
        outcomes[end.id].finished = end;
      }
    }
  }
  void run() {
    for (int i = 0; i < 10000 && !core->idle(); ++i) take(core->step());
    EXPECT_TRUE(core->idle());
    core->memory().cache().clear();
    EXPECT_EQ(core->memory().pools().pages.free_count(), settings_.pools.pages);
    EXPECT_EQ(core->memory().pools().slots.free_count(), settings_.pools.state_slots);
  }

  FakeBackend backend;
  std::unique_ptr<EngineCore> core;
  std::map<uint64_t, Outcome> outcomes;

 private:
  EngineSettings settings_;
};

std::vector<int32_t> random_prompt(std::mt19937& random, int size) {
  std::uniform_int_distribution<int32_t> token(0, FakeBackend::kVocab - 1);
  std::vector<int32_t> prompt(static_cast<size_t>(size));
  for (int32_t& id : prompt) id = token(random);
  return prompt;
}

SequenceRequest greedy(uint64_t id, std::vector<int32_t> prompt, int32_t max_tokens) {
  SequenceRequest request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0.0;
  return request;
}

/// The continuation without engine, pages or slots; shorter if the model computes NaN.
std::vector<int32_t> expected_tokens(const SequenceRequest& request, uint64_t nan_every = 0) {
  Sampler sampler = Fixture::sampler();
  FakeBackend::Prefix prefix({.nan_every = nan_every});
  for (const int32_t token : request.prompt) prefix.add(token, Arithmetic::prompt);
  std::vector<int32_t> tokens;
  while (static_cast<int32_t>(tokens.size()) < request.max_tokens && !prefix.is_nan()) {
    const auto logits = FakeBackend::logits_of(prefix.hash());
    const auto position = request.prompt.size() + tokens.size();
    const auto next = sampler.sample(logits, request.sampling, {request.prompt, tokens}, position);
    const int32_t token = next.value().token;
    if (std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) break;
    tokens.push_back(token);
    prefix.add(token, Arithmetic::generation);
  }
  return tokens;
}

TEST(EngineCore, ContinuesOneSequence) {
  Fixture fixture;
  std::mt19937 random(1);
  for (const int size : {1, 63, 64, 65, 131, 132, 133, 400}) {
    const auto request = greedy(static_cast<uint64_t>(size), random_prompt(random, size), 70);
    const auto expected = expected_tokens(request);
    fixture.core->submit(greedy(request.id, request.prompt, 70));
    fixture.run();
    const Outcome& outcome = fixture.outcomes[request.id];
    EXPECT_EQ(outcome.tokens, expected) << size;
    EXPECT_EQ(outcome.finished->reason, FinishReason::length);
    EXPECT_EQ(outcome.finished->prompt_tokens, size);
    EXPECT_EQ(outcome.finished->completion_tokens, 70);
  }
  EXPECT_LE(fixture.backend.rows_largest, 132);
}

TEST(EngineCore, StopsAtStopIdsButNotBeforeMinTokens) {
  Fixture fixture;
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
  const Outcome& outcome = fixture.outcomes[1];
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
  Fixture fixture;
  for (const size_t keep : {0, 1}) {
    auto request = greedy(keep, {1, 2, 3}, 50);
    request.constraint = std::make_unique<StopAfter>(5, keep);
    fixture.core->submit(std::move(request));
    fixture.run();
    const Outcome& outcome = fixture.outcomes[keep];
    EXPECT_EQ(outcome.tokens.size(), 4 + keep);
    for (const int32_t token : outcome.tokens) EXPECT_EQ(token % 2, 0);
    EXPECT_EQ(outcome.finished->reason, FinishReason::stop);
  }
}

TEST(EngineCore, RefusesWhatCanNeverRun) {
  Fixture fixture;
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
  EngineSettings tight = Fixture::small();
  tight.pools.pages = 2;
  Fixture cramped(tight);
  EXPECT_TRUE(cramped.core->admissible(greedy(1, {1}, 128)).ok());  // 128 cached at most
  EXPECT_EQ(cramped.core->admissible(greedy(1, {1}, 129)).error().code, ErrorCode::no_memory);
}

TEST(EngineCore, NotANumberEndsThatSequenceOnly) {
  constexpr uint64_t kNanEvery = 100;
  Fixture fixture(Fixture::small(), kNanEvery);
  std::mt19937 random(3);
  std::vector<SequenceRequest> copies;
  for (uint64_t id = 1; id <= 12; ++id) {
    copies.push_back(greedy(id, random_prompt(random, 30), 40));
    fixture.core->submit(greedy(id, copies.back().prompt, 40));
  }
  fixture.run();
  int failed = 0;
  for (const SequenceRequest& request : copies) {
    const Outcome& outcome = fixture.outcomes[request.id];
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
  Fixture fixture(Fixture::small(), kNanEvery);
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
  Fixture fixture;
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
  Fixture fixture(settings);
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
  EngineSettings settings = Fixture::small();
  settings.pools.host_pages = 24;
  settings.pools.host_slots = 4;
  for (int at = 1; at < 10; ++at) preempt_all(settings, at, &EngineCounters::swaps_in);
}

TEST(EngineCore, RestartedSequencesGoOnAsIfNothingHadBeen) {
  for (int at = 1; at < 10; ++at) preempt_all(Fixture::small(), at, &EngineCounters::recomputes);
}

TEST(EngineCore, AFailedAdmissionGivesBackWhatItTook) {
  EngineSettings settings = Fixture::small();
  settings.pools.state_slots = 8;
  for (int failing = 0; failing < 12; ++failing) {
    Fixture fixture(settings);
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
  EngineSettings settings = Fixture::small();
  settings.pools.state_slots = 8;
  Fixture fixture(settings);
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

TEST(EngineCore, ACancelledPrefillIsContinuedByTheRetry) {
  Fixture fixture;
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
  EngineSettings settings = Fixture::small();
  double now = 1.0;
  settings.clock_ms = [&now] { return now; };
  Fixture fixture(settings);
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

TEST(EngineCore, PromptLogprobsAreThoseOfEachPromptToken) {
  Fixture fixture;
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
  const Outcome& outcome = fixture.outcomes[1];
  EXPECT_EQ(outcome.finished->cached_tokens, 0);
  ASSERT_EQ(outcome.prompt_logprobs.size(), prompt.size() - 1);
  FakeBackend::Prefix prefix;
  for (size_t i = 0; i + 1 < prompt.size(); ++i) {
    prefix.add(prompt[i], Arithmetic::prompt);
    const auto expected =
        Fixture::sampler().logprobs(FakeBackend::logits_of(prefix.hash()), prompt[i + 1], 2);
    EXPECT_EQ(outcome.prompt_logprobs[i].chosen.token, prompt[i + 1]);
    EXPECT_EQ(outcome.prompt_logprobs[i].chosen.logprob, expected.value().chosen.logprob);
    EXPECT_EQ(outcome.prompt_logprobs[i].top.size(), 2U);
  }
}

TEST(EngineCore, CancelWorksInEveryPhaseWithinOneStep) {
  Fixture fixture;
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
  Fixture fixture;
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
  ASSERT_GE(first.size(), 4U);
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
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].cached, fixture.outcomes[2].finished->cached_tokens);
  EXPECT_GT(second[0].cached, 0);
  EXPECT_EQ(second[0].processed, 400);
  EXPECT_TRUE(fixture.outcomes[3].progress.empty());
}

}  // namespace
}  // namespace nibble
