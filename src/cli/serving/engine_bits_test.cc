// Pebble through the engine on the CPU and on a card, exact mode: token ids and the bits of their
// log-probabilities do not depend on the batch, the slot, the cut of the prompt, the prefix cache,
// preemption or the host tier. Every case is compared with the sequences alone. Without a card its
// half is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <random>

#include "backend/cuda/cuda_backend.h"
#include "cli/serving/model_loader.h"
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
constexpr int32_t kLongTokens = 200;
constexpr int32_t kLongPrompt = 4200;

constexpr int kDistinct = 64;  // requests; more of them repeat those with short prompts
constexpr int kMixed = 9;      // requests with prompts of all lengths; those after them are short
/// The request, from 0 on, that number `i` is or repeats.
int distinct(int i) { return i < kDistinct ? i : kMixed + (i - kMixed) % (kDistinct - kMixed); }

/// Random prompts: of the first few every third is long, and most begin with the same tokens.
std::vector<SequenceRequest> make_requests(int count, int32_t vocab_rows) {
  std::mt19937 random(11);
  const auto token = [&] {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_rows));
  };
  std::vector<int32_t> system(70);
  for (int32_t& id : system) id = token();
  std::mt19937 before_short;
  std::vector<SequenceRequest> made;
  for (int number = 0; number < count; ++number) {
    const int i = distinct(number);
    if (number == kMixed) before_short = random;
    if (number > kMixed && i == kMixed) random = before_short;
    SequenceRequest request;
    request.id = static_cast<uint64_t>(number) + 1;
    const bool tiny = i >= kMixed;  // many of those fit a quick test
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

/// One prompt of many passes.
std::vector<SequenceRequest> make_long_prompts(int count, int32_t vocab_rows) {
  std::vector<SequenceRequest> made = make_requests(count, vocab_rows);
  std::mt19937 random(12);
  while (static_cast<int32_t>(made[0].prompt.size()) < kLongPrompt)
    made[0].prompt.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_rows)));
  return made;
}

std::vector<SequenceRequest> make_long_answers(int count, int32_t vocab_rows) {
  std::vector<SequenceRequest> made = make_requests(count, vocab_rows);
  for (SequenceRequest& request : made) request.max_tokens = kLongTokens;
  return made;
}

/// Groups of three with one prompt, as the choices of one API request have it; each samples.
std::vector<SequenceRequest> make_choices(int count, int32_t vocab_rows) {
  std::vector<SequenceRequest> made = make_requests(count, vocab_rows);
  for (size_t i = 0; i < made.size(); ++i) {
    made[i].prompt = made[i / 3 * 3].prompt;
    made[i].sampling.temperature = 1.3;
  }
  return made;
}

using Requests = std::vector<SequenceRequest> (*)(int count, int32_t vocab_rows);

struct Case {
  int count = 6;
  int32_t sequences_max = 4;
  int32_t chunk = 0;   // prompt rows of a pass
  int32_t rows = 512;  // of prompts in a pass, at most
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
  int32_t model_drafts = 0;
  StateCache state = StateCache::f32;
  KvCache kv = KvCache::automatic;
  Requests requests = make_requests;
  int32_t context_max = 512;
};

struct Outcome {
  Answers answers;
  int rows_most = 0;  // sequences that got a token in one pass
  EngineCounters engine;
  PrefixCounters cache;
};

LoadedModel load(const Case& what, const char* backend) {
  auto model =
      load_model({.folder = std::string(NIBBLE_SOURCE_DIR) + "/pebble/model",
                  .backend = backend,
                  .options = {.kv_cache = what.kv, .state = what.state, .threads = what.threads},
                  .draft_layer = what.model_drafts > 0 ? DraftLayer::wanted : DraftLayer::unused});
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

class EngineBits : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!on_card()) return;
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
  }
  static bool on_card() { return GetParam() == std::string_view("cuda"); }
  static Outcome run(const Case& what);
  /// Each request of `requests` in an engine of one sequence, without a cache.
  static const Answers& alone(int count = kDistinct, Requests requests = make_requests,
                              int32_t context_max = 512);
  static void expect_alone(const Answers& answers, int count);
  static void expect_same(const Answers& answers, int count, const Answers& expected);
  struct Kept;
  static void expect_the_same_however_it_runs(const Kept& kept);
};

Outcome EngineBits::run(const Case& what) {
  LoadedModel model = load(what, GetParam());
  EngineSettings settings{.pools = {.pages = what.pages,
                                    .state_slots = what.sequences_max + what.snapshots,
                                    .rows_max = what.rows + what.sequences_max,
                                    .host_pages = what.host_pages,
                                    .host_slots = what.host_slots,
                                    .replay_rows = what.drafter            ? 4
                                                   : what.model_drafts > 0 ? what.model_drafts + 1
                                                                           : 0},
                          .sequences_max = what.sequences_max,
                          .context_max = what.context_max,
                          .cache = what.cache,
                          .chunk_tokens_max = what.chunk,
                          .step_ms = 1e6,  // the chunk alone cuts
                          .drafter = what.drafter,
                          .model_drafts = what.model_drafts,
                          .integrity = IntegrityChecks::every_step};
  // Costs stay those assumed, with which drafts pay, however loaded the machine is.
  if (what.model_drafts > 0 || what.drafter) settings.clock_ms = [] { return 1.0; };
  CHECK(model.backend->reserve(settings.pools).ok());
  const int32_t vocab = model.config.vocab_rows;
  EngineCore core(*model.backend, model.config, Sampler(vocab, Sampler::all_sampleable(vocab)),
                  settings);
  Outcome result;
  for (int round = 0; round < what.rounds; ++round) {
    result.answers.clear();
    std::vector<SequenceRequest> waiting = what.requests(what.count, vocab);
    for (int step = 0; !waiting.empty() || !core.idle(); ++step) {
      for (size_t i = 0; i < what.arrive && !waiting.empty(); ++i) {
        core.submit(std::move(waiting.back()));
        waiting.pop_back();
      }
      if (step == what.preempt_step)
        for (int id = 1; id <= what.count; ++id) core.preempt(static_cast<uint64_t>(id));
      const std::vector<EngineEvent> events = core.step();
      take(events, result.answers);
      const auto rows = std::ranges::count_if(
          events, [](const auto& event) { return std::holds_alternative<NewTokens>(event); });
      result.rows_most = std::max(result.rows_most, static_cast<int>(rows));
    }
  }
  result.engine = core.counters();
  result.cache = core.memory().cache().counters();
  return result;
}

const Answers& EngineBits::alone(int count, Requests requests, int32_t context_max) {
  static std::map<std::pair<std::string, Requests>, Answers> known;
  const auto [at, fresh] = known.try_emplace({GetParam(), requests});
  if (fresh)
    at->second = run({.count = count,
                      .sequences_max = 1,
                      .cache = CacheMode::off,
                      .arrive = 1,
                      .threads = 1,
                      .requests = requests,
                      .context_max = context_max})
                     .answers;
  return at->second;
}

void EngineBits::expect_same(const Answers& answers, int count, const Answers& expected) {
  ASSERT_EQ(answers.size(), static_cast<size_t>(count));
  for (const auto& [id, said] : answers) EXPECT_EQ(said, expected.at(id)) << "sequence " << id;
}

void EngineBits::expect_alone(const Answers& answers, int count) {
  expect_same(answers, count, alone());
  for (const auto& [id, said] : answers) {
    ASSERT_EQ(said.tokens.size(), static_cast<size_t>(kTokens)) << "sequence " << id;
    ASSERT_EQ(said.logprob_bits.size(), static_cast<size_t>(kTokens));
  }
}

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
  std::vector<int> counts = {65, 256};
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
  const Answers& expected = alone(kCount, make_long_prompts, kContext);
  const Outcome together =
      run({.count = kCount, .chunk = 192, .requests = make_long_prompts, .context_max = kContext});
  expect_same(together.answers, kCount, expected);
}

TEST_P(EngineBits, LongAnswers) {
  constexpr int kCount = 3;
  const Answers& expected = alone(kCount, make_long_answers);
  const Outcome together = run({.count = kCount, .requests = make_long_answers});
  expect_same(together.answers, kCount, expected);
  EXPECT_EQ(together.answers.at(1).tokens.size(), static_cast<size_t>(kLongTokens));
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

/// Proposes what the sequence says alone, with every fourth token wrong.
class NearlyRight final : public Drafter {
 public:
  explicit NearlyRight(const Answers& alone) : alone_(alone) {}
  void propose(const Sequence& s, int32_t count_max, std::vector<int32_t>& drafts) override {
    const std::vector<int32_t>& text = alone_.at(s.request.id).tokens;
    for (size_t i = s.generated.size();
         i < text.size() && static_cast<int32_t>(drafts.size()) < count_max; ++i)
      drafts.push_back((s.request.id + i) % 4 == 0 ? (text[i] + 1) % 256 : text[i]);
  }

 private:
  const Answers& alone_;
};

/// Formats of state and pages that are not the default.
struct EngineBits::Kept {
  StateCache state = StateCache::f32;
  KvCache kv = KvCache::automatic;
};

void EngineBits::expect_the_same_however_it_runs(const Kept& kept) {
  const auto run_kept = [&](Case what) {
    what.state = kept.state;
    what.kv = kept.kv;
    return run(what);
  };
  const Answers expected =
      run_kept({.count = 9, .sequences_max = 1, .cache = CacheMode::off, .arrive = 1, .threads = 1})
          .answers;
  const bool is_default = on_card() && kept.kv == KvCache::bf16;
  EXPECT_EQ(expected.at(1).logprob_bits == alone().at(1).logprob_bits, is_default);  // it is in use
  expect_same(run_kept({.count = 9, .sequences_max = 9, .pages = 480}).answers, 9, expected);
  for (const int32_t chunk : {1, 128})
    expect_same(run_kept({.chunk = chunk, .arrive = 1}).answers, 6, expected);
  const Outcome warm = run_kept({.rounds = 2});
  expect_same(warm.answers, 6, expected);
  EXPECT_GE(warm.cache.hits, 5);
  for (const int host_pages : {64, 0}) {  // swapped, and computed again
    const Outcome back = run_kept(
        {.count = 3, .chunk = 64, .host_pages = host_pages, .host_slots = 8, .preempt_step = 3});
    expect_same(back.answers, 3, expected);
    EXPECT_GT(back.engine.swaps_in + back.engine.recomputes, 0);
  }
  if (on_card()) return;  // drafts are refused there
  const Outcome drafted =
      run_kept({.count = 9, .arrive = 1, .drafter = std::make_shared<NearlyRight>(expected)});
  expect_same(drafted.answers, 9, expected);
  EXPECT_GT(drafted.engine.drafts_right, 0);
  const Outcome by_model = run_kept({.count = 6, .rounds = 2, .model_drafts = 3});
  expect_same(by_model.answers, 6, expected);
}

/// A state that is rounded where a block of a prompt ends and after each generated token.
TEST_P(EngineBits, WithAStateInBf16) {
  expect_the_same_however_it_runs({.state = StateCache::bf16});
}
TEST_P(EngineBits, WithKeysAndValuesInFp8) {
  expect_the_same_however_it_runs({.kv = KvCache::fp8});
}
TEST_P(EngineBits, WithKeysAndValuesInBf16) {
  expect_the_same_however_it_runs({.kv = KvCache::bf16});
}
TEST_P(EngineBits, WithKeysAndValuesInTurboQuant) {
  expect_the_same_however_it_runs({.kv = KvCache::turboquant_4bit_nc});
}
TEST_P(EngineBits, WithKeysAndValuesInNvfp4) {
  expect_the_same_however_it_runs({.kv = KvCache::nvfp4});
}

TEST_P(EngineBits, WithDraftsRightAndWrong) {
  const auto drafter = std::make_shared<NearlyRight>(alone());
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

/// Rounds of many sequences, some with drafts and some without, over the end of a page.
TEST_P(EngineBits, WithDraftsInBatchesOfAnySize) {
  const Answers& expected = alone(3, make_long_answers);
  const auto long_drafter = std::make_shared<NearlyRight>(expected);
  const Outcome drafted = run({.count = 3, .drafter = long_drafter, .requests = make_long_answers});
  expect_same(drafted.answers, 3, expected);
  EXPECT_GT(drafted.engine.drafts_right, 200);
  const auto drafter = std::make_shared<NearlyRight>(alone());
  std::vector<int> counts = {7, 64};
  if (on_card()) counts = {1, 2, 3, 5, 8, 13, 16, 31, 33, 48, 64};
  for (const int count : counts) {
    SCOPED_TRACE(count);
    expect_alone(
        run({.count = count, .sequences_max = count, .pages = 480, .drafter = drafter}).answers,
        count);
  }
  const auto in_bf16 = [&](std::shared_ptr<Drafter> proposer) {
    return run({.count = 9, .drafter = std::move(proposer), .state = StateCache::bf16}).answers;
  };
  expect_same(in_bf16(drafter), 9, in_bf16(nullptr));
}

/// Half of the requests penalise, so that drafts are refused that the layer was sure of.
std::vector<SequenceRequest> make_penalised(int count, int32_t vocab_rows) {
  std::vector<SequenceRequest> made = make_requests(count, vocab_rows);
  for (size_t i = 0; i < made.size(); ++i) {
    made[i].max_tokens = 80;  // to the next page and on
    if (i % 2 == 0) continue;
    made[i].sampling.presence_penalty = 1.5;
    made[i].sampling.repetition_penalty = 1.3;
    made[i].min_tokens = 20;
    made[i].sampling.logit_bias = {{7, 2.0}, {9, -100.0}};
  }
  return made;
}

/// Drafts of the MTP layer change nothing, for each number of them.
TEST_P(EngineBits, WithDraftsOfTheModel) {
  for (int32_t drafts = 1; drafts <= 5; ++drafts) {
    SCOPED_TRACE(drafts);
    expect_alone(run({.count = 9, .arrive = 1, .model_drafts = drafts}).answers, 9);
  }
  const Outcome drafted = run({.count = 6, .model_drafts = 3, .requests = make_penalised});
  expect_same(drafted.answers, 6, alone(6, make_penalised));
  EXPECT_GT(drafted.engine.drafts_right, 20);
  EXPECT_GT(drafted.engine.drafted, drafted.engine.drafts_right);
}

TEST_P(EngineBits, WithDraftsOfTheModelFromWhateverTheCacheHolds) {
  const Outcome warm = run({.rounds = 2, .model_drafts = 3});
  expect_alone(warm.answers, 6);
  EXPECT_GE(warm.cache.hits, 5);
  const Outcome restored = run({.count = 9,
                                .sequences_max = 2,
                                .pages = 4,
                                .snapshots = 2,
                                .host_pages = 64,
                                .host_slots = 24,
                                .rounds = 2,
                                .model_drafts = 2});
  expect_alone(restored.answers, 9);
  EXPECT_GT(restored.cache.states_loaded, 0);
  const Outcome choices =
      run({.count = 9, .sequences_max = 5, .model_drafts = 4, .requests = make_choices});
  expect_same(choices.answers, 9, alone(9, make_choices));
}

TEST_P(EngineBits, WithDraftsOfTheModelPreemptedAtEveryStep) {
  for (int step = 1; step < kTokens + 3; ++step)
    for (const int host_pages : {64, 0}) {  // swapped, and computed again
      SCOPED_TRACE(step);
      expect_alone(run({.count = 3,
                        .chunk = 64,
                        .host_pages = host_pages,
                        .host_slots = 8,
                        .preempt_step = step,
                        .model_drafts = 3})
                       .answers,
                   3);
    }
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

}  // namespace
}  // namespace nibble
