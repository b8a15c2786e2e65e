// CoreFixture, for tests: an EngineCore over the fake model, its messages about each request, and
// the tokens that the model says without engine, pages or slots.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "engine/engine_core.h"
#include "engine/testing/fake_backend.h"

namespace nibble {

class CoreFixture {
 public:
  struct Outcome {
    std::vector<int32_t> tokens;
    std::vector<PositionLogprobs> logprobs;
    std::vector<PositionLogprobs> prompt_logprobs;
    std::vector<PromptProgress> progress;
    std::optional<Finished> finished;
  };

  explicit CoreFixture(EngineSettings settings = small(), uint64_t nan_every = 0)
      : CoreFixture(std::move(settings), FakeBackend::Model{.nan_every = nan_every}) {}
  CoreFixture(EngineSettings settings, const FakeBackend::Model& model)
      : backend(model), settings_(std::move(settings)) {
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

inline std::vector<int32_t> random_prompt(std::mt19937& random, int size) {
  std::uniform_int_distribution<int32_t> token(0, FakeBackend::kVocab - 1);
  std::vector<int32_t> prompt(static_cast<size_t>(size));
  for (int32_t& id : prompt) id = token(random);
  return prompt;
}

inline SequenceRequest greedy(uint64_t id, std::vector<int32_t> prompt, int32_t max_tokens) {
  SequenceRequest request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0.0;
  return request;
}

/// The continuation without engine, pages or slots; shorter if the model computes NaN.
inline std::vector<int32_t> expected_tokens(const SequenceRequest& request,
                                            uint64_t nan_every = 0) {
  Sampler sampler = CoreFixture::sampler();
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

}  // namespace nibble
