// The serving loop over the fake model: whatever runs beside a sequence, whatever is cancelled, its
// tokens are those of the sequence alone, and no page or slot is lost.
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
  std::optional<Finished> finished;
};

class Fixture {
 public:
  explicit Fixture(EngineSettings settings = small(), uint64_t nan_every = 0)
      : backend(nan_every), settings_(settings) {
    EXPECT_TRUE(backend.reserve(settings.pools).ok());
    core = std::make_unique<EngineCore>(backend, FakeBackend::config(), sampler(), settings);
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
      if (auto* fresh = std::get_if<NewTokens>(&event)) {
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
    EXPECT_EQ(core->kv_pool().free_count(), settings_.pools.pages);
    EXPECT_EQ(core->state_pool().free_count(), settings_.pools.state_slots);
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

/// The continuation without engine, pages or slots.
std::vector<int32_t> expected_tokens(const SequenceRequest& request) {
  Sampler sampler = Fixture::sampler();
  std::vector<int32_t> prefix = request.prompt;
  std::vector<int32_t> tokens;
  while (static_cast<int32_t>(tokens.size()) < request.max_tokens) {
    const auto logits = FakeBackend::logits_of(FakeBackend::prefix_hash(prefix));
    const auto next =
        sampler.sample(logits, request.sampling, {request.prompt, tokens}, prefix.size());
    const int32_t token = next.value().token;
    if (std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) break;
    tokens.push_back(token);
    prefix.push_back(token);
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
  Fixture fixture(Fixture::small(), 40);
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
    auto expected = expected_tokens(request);
    if (outcome.finished->reason == FinishReason::error) {
      ++failed;
      EXPECT_NE(outcome.finished->error.find("not a number"), std::string::npos);
      expected.resize(outcome.tokens.size());
    }
    EXPECT_EQ(outcome.tokens, expected);
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, 12);
}

/// Random arrivals, lengths, sampling and cancels.
void simulate(uint32_t seed, int& cancelled_waiting, int& cancelled_prefill,
              int& cancelled_decode) {
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Fixture fixture;
  std::map<uint64_t, std::vector<int32_t>> expected;
  std::map<uint64_t, int> submitted_at;
  uint64_t next_id = 1;
  for (int step = 0; step < 120 && !::testing::Test::HasFailure(); ++step) {
    if (pick(0, 3) == 0) {
      SequenceRequest request = greedy(
          next_id++, random_prompt(random, pick(0, 4) ? pick(1, 80) : pick(200, 600)), pick(1, 60));
      if (pick(0, 1)) request.sampling = {.temperature = 1.2, .top_k = 5, .seed = seed};
      request.stop_ids = {pick(0, 96)};
      expected[request.id] = expected_tokens(request);
      fixture.core->submit(std::move(request));
    }
    if (pick(0, 9) == 0 && next_id > 1) {
      const uint64_t id = static_cast<uint64_t>(pick(1, static_cast<int>(next_id) - 1));
      const bool live = !fixture.outcomes[id].finished;
      const bool spoke = !fixture.outcomes[id].tokens.empty();
      fixture.core->cancel(id);
      const bool took_pages = fixture.core->kv_pool().free_count() > 0;
      if (live) ++(spoke ? cancelled_decode : (took_pages ? cancelled_prefill : cancelled_waiting));
    }
    fixture.take(fixture.core->step());
  }
  fixture.run();
  for (auto& [id, outcome] : fixture.outcomes) {
    ASSERT_TRUE(outcome.finished) << "seed " << seed << " id " << id;
    auto& wanted = expected[id];
    if (outcome.finished->reason == FinishReason::cancelled) {
      ASSERT_LE(outcome.tokens.size(), wanted.size()) << "seed " << seed;
      wanted.resize(outcome.tokens.size());
    }
    ASSERT_EQ(outcome.tokens, wanted) << "seed " << seed << " id " << id;
  }
}

TEST(EngineCore, ManySeedsWithCancels) {
  int waiting = 0;
  int prefill = 0;
  int decode = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    simulate(seed, waiting, prefill, decode);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(waiting + prefill, 20);
  EXPECT_GT(decode, 20);
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

}  // namespace
}  // namespace nibble
