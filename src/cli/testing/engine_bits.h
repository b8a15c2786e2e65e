// Pebble through the engine on the CPU and on a card, exact mode: token ids and the bits of their
// log-probabilities, of requests in any engine and alone. Without a card its half is skipped.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "base/thread_pool.h"
#include "cli/serving/model_loader.h"
#include "engine/engine_core.h"
#include "testing/source_dir.h"

namespace nibble::engine_bits {

struct Said {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> logprob_bits;
  int32_t cached_tokens = 0;
  bool operator==(const Said& other) const {
    return tokens == other.tokens && logprob_bits == other.logprob_bits;
  }
};

using Answers = std::map<uint64_t, Said>;

inline constexpr int32_t kTokens = 5;
inline constexpr int32_t kLongTokens = 200;

inline constexpr int kDistinct = 64;  // requests; more of them repeat those with short prompts
inline constexpr int kMixed =
    9;  // requests with prompts of all lengths; those after them are short
/// The request, from 0 on, that number `i` is or repeats.
inline int distinct(int i) {
  return i < kDistinct ? i : kMixed + (i - kMixed) % (kDistinct - kMixed);
}

/// Random prompts: of the first few every third is long, and most begin with the same tokens.
inline std::vector<SequenceRequest> make_requests(int count, int32_t vocab_rows) {
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
/// The first prompt has kLength tokens.
template <int32_t kLength>
std::vector<SequenceRequest> make_long_prompts(int count, int32_t vocab_rows) {
  std::vector<SequenceRequest> made = make_requests(count, vocab_rows);
  std::mt19937 random(12);
  while (static_cast<int32_t>(made[0].prompt.size()) < kLength)
    made[0].prompt.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_rows)));
  return made;
}

inline std::vector<SequenceRequest> make_long_answers(int count, int32_t vocab_rows) {
  std::vector<SequenceRequest> made = make_requests(count, vocab_rows);
  for (SequenceRequest& request : made) request.max_tokens = kLongTokens;
  return made;
}

/// Groups of three with one prompt, as the choices of one API request have it; each samples.
inline std::vector<SequenceRequest> make_choices(int count, int32_t vocab_rows) {
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
  int threads = std::min(2, usable_cores());
  std::shared_ptr<Drafter> drafter = nullptr;
  int32_t model_drafts = 0;
  DraftWeights draft_weights = {};  // weights of the layer that makes these
  StateCache state = StateCache::f32;
  KvCache kv = KvCache::automatic;
  Requests requests = make_requests;
  int32_t context_max = 512;
  std::filesystem::path folder = NIBBLE_SOURCE_DIR "/pebble/model";
  Activations activations = Activations::automatic;
  Fp4Products products = Fp4Products::instruction;  // wanted on a card
};

/// Nine requests on a device with so little memory that later rounds restore from the host tier.
inline Case short_of_pages(int rounds) {
  return {.count = 9,
          .sequences_max = 2,
          .pages = 4,
          .snapshots = 2,
          .host_pages = 64,
          .host_slots = 24,
          .rounds = rounds};
}

struct Outcome {
  Answers answers;
  int rows_most = 0;  // sequences that got a token in one pass
  EngineCounters engine;
  PrefixCounters cache;
};

inline LoadedModel load(const Case& what, const char* backend) {
  auto model =
      load_model({.folder = what.folder,
                  .backend = backend,
                  .options = {.activations = what.activations,
                              .kv_cache = what.kv,
                              .state = what.state,
                              .threads = what.threads},
                  .wanted = {.asked = what.products},
                  .draft_layer = what.model_drafts > 0 ? DraftLayer::wanted : DraftLayer::unused,
                  .draft_weights = what.draft_weights});
  CHECK(model.ok(), model.error().message);
  return std::move(model).value();
}

inline void take(const std::vector<EngineEvent>& events, Answers& answers) {
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
  /// Formats, weights and products that are not the default.
  struct Kept {
    StateCache state = StateCache::f32;
    KvCache kv = KvCache::automatic;
    std::filesystem::path folder = NIBBLE_SOURCE_DIR "/pebble/model";
    Activations activations = Activations::automatic;
    Fp4Products products = Fp4Products::instruction;
    int32_t model_drafts = 3;
  };
  static void expect_the_same_however_it_runs(const Kept& kept);
};

inline Outcome EngineBits::run(const Case& what) {
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

inline const Answers& EngineBits::alone(int count, Requests requests, int32_t context_max) {
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

inline void EngineBits::expect_same(const Answers& answers, int count, const Answers& expected) {
  ASSERT_EQ(answers.size(), static_cast<size_t>(count));
  for (const auto& [id, said] : answers) EXPECT_EQ(said, expected.at(id)) << "sequence " << id;
}

inline void EngineBits::expect_alone(const Answers& answers, int count) {
  expect_same(answers, count, alone());
  for (const auto& [id, said] : answers) {
    ASSERT_EQ(said.tokens.size(), static_cast<size_t>(kTokens)) << "sequence " << id;
    ASSERT_EQ(said.logprob_bits.size(), static_cast<size_t>(kTokens));
  }
}

}  // namespace nibble::engine_bits
