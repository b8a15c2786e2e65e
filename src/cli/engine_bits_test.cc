// Pebble through the engine: tokens and the bits of their log-probabilities do not depend on what
// runs beside a sequence, on when it came, or on how its prompt was cut.
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
  bool operator==(const Said&) const = default;
};

class EngineBits : public ::testing::Test {
 protected:
  static constexpr int kSequences = 9;
  static constexpr int32_t kTokens = 12;

  static LoadedModel load(int threads) {
    auto model = load_model({.folder = std::string(NIBBLE_SOURCE_DIR) + "/pebble/model",
                             .backend = "cpu",
                             .options = {.threads = threads}});
    CHECK(model.ok(), model.error().message);
    return std::move(model).value();
  }
  static std::vector<SequenceRequest> requests(int32_t vocab_rows) {
    std::mt19937 random(11);
    std::vector<SequenceRequest> made;
    for (int i = 0; i < kSequences; ++i) {
      SequenceRequest request;
      request.id = static_cast<uint64_t>(i) + 1;
      const size_t size = i % 3 == 0 ? 150 + random() % 150 : 1 + random() % 70;
      while (request.prompt.size() < size)
        request.prompt.push_back(
            static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_rows)));
      request.max_tokens = kTokens;
      request.sampling.temperature = i % 2 == 0 ? 0.0 : 1.3;
      request.sampling.seed = static_cast<uint64_t>(i);
      request.sampling.top_logprobs = 0;
      made.push_back(std::move(request));
    }
    return made;
  }
  /// Runs the sequences with the given ids; `arrive` sequences come before each step.
  static std::map<uint64_t, Said> run(int32_t sequences_max, int32_t rows_max, size_t arrive,
                                      int threads) {
    LoadedModel model = load(threads);
    const EngineSettings settings{
        .pools = {.pages = 64, .state_slots = sequences_max, .rows_max = rows_max},
        .sequences_max = sequences_max,
        .context_max = 512,
        .integrity = IntegrityChecks::every_step};
    CHECK(model.backend->reserve(settings.pools).ok());
    const int32_t vocab = model.config.vocab_rows;
    EngineCore core(*model.backend, model.config, Sampler(vocab, Sampler::all_sampleable(vocab)),
                    settings);
    std::map<uint64_t, Said> said;
    std::vector<SequenceRequest> waiting = requests(vocab);
    while (!waiting.empty() || !core.idle()) {
      for (size_t i = 0; i < arrive && !waiting.empty(); ++i) {
        core.submit(std::move(waiting.back()));
        waiting.pop_back();
      }
      for (const EngineEvent& event : core.step()) {
        const auto* fresh = std::get_if<NewTokens>(&event);
        if (fresh == nullptr) continue;
        Said& to = said[fresh->id];
        to.tokens.insert(to.tokens.end(), fresh->tokens.begin(), fresh->tokens.end());
        for (const PositionLogprobs& position : fresh->logprobs)
          to.logprob_bits.push_back(std::bit_cast<uint64_t>(position.chosen.logprob));
      }
    }
    return said;
  }
};

TEST_F(EngineBits, BatchedIsAlone) {
  const auto alone = run(1, 512, 1, 1);
  ASSERT_EQ(alone.size(), size_t{kSequences});
  for (const auto& [id, said] : alone) {
    ASSERT_EQ(said.tokens.size(), size_t{kTokens});
    ASSERT_EQ(said.logprob_bits.size(), size_t{kTokens});
  }
  EXPECT_EQ(run(8, 512, kSequences, 2), alone);  // all at once
  EXPECT_EQ(run(4, 68, 1, 2), alone);            // prompts in pieces of 64, arrivals staggered
}

}  // namespace
}  // namespace nibble
