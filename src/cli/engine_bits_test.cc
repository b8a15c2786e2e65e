// Pebble through the engine, exact mode: token ids and the bits of their log-probabilities do not
// depend on the batch, the slot, the cut of the prompt, the prefix cache, preemption or the host
// tier. Every case is compared with the sequences alone.
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <random>

#include "cli/model_loader.h"
#include "engine/engine_core.h"

namespace nibble {
namespace {

struct Said {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> logprob_bits;
  int32_t cached_tokens = 0;
  bool operator==(const Said& other) const {
    return tokens == other.tokens && logprob_bits == other.logprob_bits;
  }
};

using Answers = std::map<uint64_t, Said>;

constexpr int32_t kTokens = 5;

/// Random prompts: every third long, all with the same beginning but a few.
std::vector<SequenceRequest> make_requests(int count, int32_t vocab_rows) {
  std::mt19937 random(11);
  const auto token = [&] {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_rows));
  };
  std::vector<int32_t> system(70);
  for (int32_t& id : system) id = token();
  std::vector<SequenceRequest> made;
  for (int i = 0; i < count; ++i) {
    SequenceRequest request;
    request.id = static_cast<uint64_t>(i) + 1;
    const bool tiny = i >= 9;  // many of those fit a quick test
    if (i % 4 != 0 && !tiny) request.prompt = system;
    const size_t more = i % 3 == 0 && !tiny ? 70 + random() % 70 : 1 + random() % 20;
    for (size_t k = 0; k < more; ++k) request.prompt.push_back(token());
    request.max_tokens = kTokens;
    request.sampling.temperature = i % 2 == 0 ? 0.0 : 1.3;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.top_logprobs = 0;
    request.cache.boundaries = {70};
    made.push_back(std::move(request));
  }
  return made;
}

struct Case {
  int count = 6;
  int32_t sequences_max = 4;
  int32_t chunk = 0;  // prompt rows of a pass
  int32_t pages = 96;
  int32_t snapshots = 8;
  int32_t host_pages = 0;
  int32_t host_slots = 0;
  CacheMode cache = CacheMode::exact;
  size_t arrive = 64;     // per step
  int rounds = 1;         // all requests again, on the warm cache; the last round counts
  int preempt_step = -1;  // all that run are swapped out before this step
  int threads = 2;
  std::shared_ptr<Drafter> drafter = nullptr;
  StateCache state = StateCache::f32;
  KvCache kv = KvCache::automatic;
};

struct Outcome {
  Answers answers;
  EngineCounters engine;
  PrefixCounters cache;
};

LoadedModel load(const Case& what) {
  auto model =
      load_model({.folder = std::string(NIBBLE_SOURCE_DIR) + "/pebble/model",
                  .backend = "cpu",
                  .options = {.kv_cache = what.kv, .state = what.state, .threads = what.threads}});
  CHECK(model.ok(), model.error().message);
  return std::move(model).value();
}

void take(const std::vector<EngineEvent>& events, Answers& answers) {
  for (const EngineEvent& event : events) {
    if (const auto* end = std::get_if<Finished>(&event)) {
      CHECK(end->reason == FinishReason::length, "sequence ", end->id, ": ", end->error);
      answers[end->id].cached_tokens = end->cached_tokens;
    }
    const auto* fresh = std::get_if<NewTokens>(&event);
    if (fresh == nullptr) continue;
    Said& to = answers[fresh->id];
    to.tokens.insert(to.tokens.end(), fresh->tokens.begin(), fresh->tokens.end());
    for (const PositionLogprobs& position : fresh->logprobs)
      to.logprob_bits.push_back(std::bit_cast<uint64_t>(position.chosen.logprob));
  }
}

Outcome run(const Case& what) {
  LoadedModel model = load(what);
  const EngineSettings settings{.pools = {.pages = what.pages,
                                          .state_slots = what.sequences_max + what.snapshots,
                                          .rows_max = 512 + what.sequences_max,
                                          .host_pages = what.host_pages,
                                          .host_slots = what.host_slots,
                                          .replay_rows = what.drafter ? 4 : 0},
                                .sequences_max = what.sequences_max,
                                .context_max = 512,
                                .cache = what.cache,
                                .chunk_tokens_max = what.chunk,
                                .step_ms = 1e6,  // the chunk alone cuts
                                .drafter = what.drafter,
                                .integrity = IntegrityChecks::every_step};
  CHECK(model.backend->reserve(settings.pools).ok());
  const int32_t vocab = model.config.vocab_rows;
  EngineCore core(*model.backend, model.config, Sampler(vocab, Sampler::all_sampleable(vocab)),
                  settings);
  Outcome result;
  for (int round = 0; round < what.rounds; ++round) {
    result.answers.clear();
    std::vector<SequenceRequest> waiting = make_requests(what.count, vocab);
    for (int step = 0; !waiting.empty() || !core.idle(); ++step) {
      for (size_t i = 0; i < what.arrive && !waiting.empty(); ++i) {
        core.submit(std::move(waiting.back()));
        waiting.pop_back();
      }
      if (step == what.preempt_step)
        for (int id = 1; id <= what.count; ++id) core.preempt(static_cast<uint64_t>(id));
      take(core.step(), result.answers);
    }
  }
  result.engine = core.counters();
  result.cache = core.memory().cache().counters();
  return result;
}

/// Each request in an engine of one sequence, without a cache.
const Answers& alone() {
  static const Answers answers =
      run({.count = 64, .sequences_max = 1, .cache = CacheMode::off, .arrive = 1, .threads = 1})
          .answers;
  return answers;
}

void expect_alone(const Answers& answers, int count) {
  ASSERT_EQ(answers.size(), static_cast<size_t>(count));
  for (const auto& [id, said] : answers) {
    ASSERT_EQ(said.tokens.size(), static_cast<size_t>(kTokens)) << "sequence " << id;
    ASSERT_EQ(said.logprob_bits.size(), static_cast<size_t>(kTokens));
    EXPECT_EQ(said, alone().at(id)) << "sequence " << id;
  }
}

TEST(EngineBits, InBatchesOfAnySize) {
  for (const int count : {2, 7, 64}) {
    SCOPED_TRACE(count);
    expect_alone(run({.count = count, .sequences_max = count, .pages = 480}).answers, count);
  }
  expect_alone(run({.count = 9, .sequences_max = 4, .arrive = 1}).answers, 9);  // other slots
}

TEST(EngineBits, HoweverPromptsAreCut) {
  for (const int32_t chunk : {1, 128, 512, 0}) {
    SCOPED_TRACE(chunk);
    expect_alone(run({.chunk = chunk, .arrive = 1}).answers, 6);
  }
}

TEST(EngineBits, WhateverThePrefixCacheHolds) {
  expect_alone(run({.cache = CacheMode::off}).answers, 6);
  const Outcome warm = run({.rounds = 2});
  expect_alone(warm.answers, 6);
  EXPECT_GE(warm.cache.hits, 5);
  const Outcome tight = run({.count = 9, .pages = 12, .snapshots = 3, .rounds = 2});
  expect_alone(tight.answers, 9);
  EXPECT_GT(tight.cache.pages_evicted + tight.cache.snapshots_evicted, 0);
}

TEST(EngineBits, RestoredFromTheHostTier) {
  const Outcome restored = run({.count = 9,
                                .sequences_max = 2,
                                .pages = 4,
                                .snapshots = 2,
                                .host_pages = 64,
                                .host_slots = 24,
                                .rounds = 3});
  expect_alone(restored.answers, 9);
  EXPECT_GT(restored.cache.pages_loaded, 0);
  EXPECT_GT(restored.cache.states_loaded, 0);
}

/// How numbers are kept between passes, where not in F32.
struct Kept {
  StateCache state = StateCache::f32;
  KvCache kv = KvCache::automatic;
};

void expect_the_same_however_it_runs(const Kept& kept) {
  const auto run_kept = [&](Case what) {
    what.state = kept.state;
    what.kv = kept.kv;
    return run(what);
  };
  const Answers expected =
      run_kept({.count = 9, .sequences_max = 1, .cache = CacheMode::off, .arrive = 1, .threads = 1})
          .answers;
  const auto expect_same = [&](const Outcome& outcome, int count) {
    ASSERT_EQ(outcome.answers.size(), static_cast<size_t>(count));
    for (const auto& [id, said] : outcome.answers)
      EXPECT_EQ(said, expected.at(id)) << "sequence " << id;
  };
  EXPECT_NE(expected.at(1).logprob_bits,
            alone().at(1).logprob_bits);  // it is in use
  expect_same(run_kept({.count = 9, .sequences_max = 9, .pages = 480}), 9);
  for (const int32_t chunk : {1, 128}) expect_same(run_kept({.chunk = chunk, .arrive = 1}), 6);
  const Outcome warm = run_kept({.rounds = 2});
  expect_same(warm, 6);
  EXPECT_GE(warm.cache.hits, 5);
  for (const int host_pages : {64, 0}) {  // swapped, and computed again
    const Outcome back = run_kept(
        {.count = 3, .chunk = 64, .host_pages = host_pages, .host_slots = 8, .preempt_step = 3});
    expect_same(back, 3);
    EXPECT_GT(back.engine.swaps_in + back.engine.recomputes, 0);
  }
}

/// A state that is rounded where a block of a prompt ends and behind each generated token.
TEST(EngineBits, WithAStateInBf16) { expect_the_same_however_it_runs({.state = StateCache::bf16}); }
TEST(EngineBits, WithKeysAndValuesInFp8) { expect_the_same_however_it_runs({.kv = KvCache::fp8}); }
TEST(EngineBits, WithKeysAndValuesInBf16) {
  expect_the_same_however_it_runs({.kv = KvCache::bf16});
}

/// Proposes what the sequence says alone, with every fourth token wrong.
class NearlyRight final : public Drafter {
 public:
  void propose(const Sequence& s, int32_t count_max, std::vector<int32_t>& drafts) override {
    const std::vector<int32_t>& text = alone().at(s.request.id).tokens;
    for (size_t i = s.generated.size();
         i < text.size() && static_cast<int32_t>(drafts.size()) < count_max; ++i)
      drafts.push_back((s.request.id + i) % 4 == 0 ? (text[i] + 1) % 256 : text[i]);
  }
};

TEST(EngineBits, WithDraftsRightAndWrong) {
  alone();
  const auto drafter = std::make_shared<NearlyRight>();
  const Outcome drafted = run({.count = 9, .arrive = 1, .drafter = drafter});
  expect_alone(drafted.answers, 9);
  EXPECT_GT(drafted.engine.drafts_right, 5);
  EXPECT_GT(drafted.engine.drafted, drafted.engine.drafts_right);
  for (int step = 1; step < kTokens; ++step)
    expect_alone(run({.count = 3,
                      .chunk = 64,
                      .host_pages = step % 2 == 0 ? 64 : 0,
                      .host_slots = 8,
                      .preempt_step = step,
                      .drafter = drafter})
                     .answers,
                 3);
}

TEST(EngineBits, PreemptedAtEveryStep) {
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

}  // namespace
}  // namespace nibble
