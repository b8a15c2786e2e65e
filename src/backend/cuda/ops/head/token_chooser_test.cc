// Tokens chosen on a card through the Backend interface; the kernel alone is compared by
// bench/cuda/choose_token_check.cc.
#include "backend/cuda/ops/head/token_chooser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "backend/cuda/cuda_backend.h"
#include "checkpoint/checkpoint.h"
#include "engine/sample/sampler.h"
#include "model/forward.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

/// Pebble on a card, with room for rows in more than one block.
class CudaChoice : public testing::Test {
 protected:
  static constexpr int32_t kSequences = 150;

  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
    backend = make_cuda_backend(weights, config, {}).value();
    backend->reserve({.pages = kSequences, .state_slots = kSequences, .rows_max = 256}).value();
  }

  const Checkpoint checkpoint = Checkpoint::open(NIBBLE_SOURCE_DIR "/pebble/model").value();
  const ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  const Weights weights = Weights::bind(checkpoint, config).value();
  std::unique_ptr<Backend> backend;
};

/// Recorded, launched, and in more than one block of rows: the tokens chosen on the card are those
/// that the host chooses from the logits of a pass without choices, with penalties over several
/// passes, masks and biases.
TEST_F(CudaChoice, IsTheHosts) {
  const auto vocab = static_cast<size_t>(config.vocab_rows);
  const std::vector<uint32_t> sampleable((vocab + 31) / 32, 0xFFFFFFF7U);
  backend->set_sampleable(sampleable);
  Sampler sampler(config.vocab_rows, sampleable);
  uint64_t serial = 0;
  for (const int32_t count : {1, 5, 64, 70, kSequences}) {
    std::vector<std::vector<int32_t>> said(static_cast<size_t>(count));
    const uint64_t first_serial = serial + 1;
    serial += static_cast<uint64_t>(count);
    for (int32_t step = 0; step < 3; ++step) {
      Batch batch;
      std::mt19937 random(static_cast<uint32_t>(3 * count + step));
      for (int32_t i = 0; i < count; ++i)
        batch.tokens.push_back(static_cast<int32_t>(random() % vocab));
      batch.positions.assign(3 * batch.tokens.size(), 0);
      for (int32_t i = 0; i < count; ++i) {
        batch.sequences.push_back({.row_begin = i,
                                   .row_count = 1,
                                   .page_begin = i,
                                   .page_count = 1,
                                   .state_in = i,
                                   .state_out = i,
                                   .arithmetic = Arithmetic::generation});
        batch.pages.push_back(i);
        if (count < 5 || i % 5 != 2) batch.logit_rows.push_back(i);
      }
      const auto pass = [&] {
        for (int32_t slot = 0; slot < count; ++slot) backend->zero_state(slot);
        return forward(*backend, config, batch);
      };
      const HeadOutput whole = pass();
      ASSERT_TRUE(whole.chosen.empty());
      const std::vector<float> logits(whole.logits.begin(), whole.logits.end());
      const std::vector<int32_t> prompt = {5, 6, 7};
      const std::vector<uint32_t> mask((vocab + 31) / 32, 0xAAAAAAAAU);
      std::vector<SamplingParams> params(batch.logit_rows.size());
      for (size_t i = 0; i < params.size(); ++i) {
        params[i].seed = i;
        if (i % 2 == 1) params[i].presence_penalty = params[i].repetition_penalty = 1.5;
        if (i % 3 == 1) params[i].top_p = 0.9;
        if (i % 5 == 1) params[i].logit_bias = {{static_cast<int32_t>(i), 3.0F}};
        if (i % 7 == 1) params[i].top_logprobs = 4;
        const auto of = static_cast<size_t>(batch.logit_rows[i]);
        batch.choices.push_back(Sampler::choice_of(
            params[i], {.prompt = prompt, .generated = said[of], .serial = first_serial + of}, i,
            i % 4 == 1 ? std::span<const uint32_t>(mask) : std::span<const uint32_t>()));
      }
      const HeadOutput chosen = pass();
      ASSERT_EQ(chosen.chosen.size(), batch.logit_rows.size());
      for (size_t i = 0; i < params.size(); ++i) {
        const auto expected =
            sampler.choose(std::span(logits).subspan(i * vocab, vocab), batch.choices[i]);
        const ChosenToken& found = chosen.chosen[i];
        EXPECT_TRUE(found.sound);
        EXPECT_EQ(found.token, expected.token) << i << " of " << count << ", step " << step;
        EXPECT_EQ(found.mass, expected.mass);
        EXPECT_EQ(found.rank, expected.rank);
        EXPECT_EQ(found.top.size(), expected.top.size());
        said[static_cast<size_t>(batch.logit_rows[i])].push_back(expected.token);
      }
    }
  }
}

/// Chains of sampled tokens, some of which end: read by the host after each pass and given to the
/// next, or carried over on the card while the host reads them late.
class CudaCarried : public CudaChoice {
 protected:
  static constexpr int32_t kSteps = 9;
  static bool goes_on(int32_t sequence, int32_t step) { return step < 4 || sequence % 4 != 1; }

  /// The sequences that feed token `step`, one row each. `before`: the same of the pass before.
  static Batch pass_of(int32_t count, int32_t step, std::vector<int32_t>& before) {
    Batch batch;
    std::vector<int32_t> now;
    for (int32_t i = 0; i < count; ++i) {
      if (!goes_on(i, step)) continue;
      const auto row = static_cast<int32_t>(now.size());
      batch.sequences.push_back({.row_begin = row,
                                 .row_count = 1,
                                 .kv_begin = step,
                                 .page_begin = row,
                                 .page_count = 1,
                                 .state_in = i,
                                 .state_out = i,
                                 .arithmetic = Arithmetic::generation});
      batch.pages.push_back(i);
      batch.logit_rows.push_back(row);
      batch.tokens.push_back(7 + i);  // the first one
      const auto at = std::ranges::find(before, i) - before.begin();
      if (step > 0) batch.carried.push_back(static_cast<int32_t>(at));
      const SamplingParams params{.seed = static_cast<uint64_t>(i), .top_logprobs = 1};
      batch.choices.push_back(Sampler::choice_of(params, {.serial = static_cast<uint64_t>(i) + 1},
                                                 static_cast<uint64_t>(step)));
      now.push_back(i);
    }
    batch.positions.assign(3 * batch.tokens.size(), step);
    before = now;
    return batch;
  }
};

TEST_F(CudaCarried, TokensAreThoseThatTheHostWouldGive) {
  for (const int32_t count : {1, 5, 64, 70, kSequences}) {
    SCOPED_TRACE(count);
    const auto zero = [&] {
      for (int32_t slot = 0; slot < count; ++slot) backend->zero_state(slot);
    };
    std::vector<std::vector<ChosenToken>> expected;
    std::vector<int32_t> before;
    zero();
    for (int32_t step = 0; step < kSteps; ++step) {
      Batch batch = pass_of(count, step, before);
      for (size_t row = 0; row < batch.carried.size(); ++row)
        batch.tokens[row] = expected.back()[static_cast<size_t>(batch.carried[row])].token;
      batch.carried.clear();
      const auto chosen = forward(*backend, config, batch).chosen;
      expected.emplace_back(chosen.begin(), chosen.end());
    }
    before.clear();
    zero();
    for (int32_t step = 0; step <= kSteps; ++step) {
      Batch batch;
      Residual h;
      if (step < kSteps) {
        batch = pass_of(count, step, before);
        h = run_layers(*backend, config, batch);
      }
      if (step > 0) {
        const auto chosen = backend->end_head().chosen;
        const auto& those = expected[static_cast<size_t>(step) - 1];
        ASSERT_EQ(chosen.size(), those.size());
        for (size_t row = 0; row < those.size(); ++row) {
          EXPECT_EQ(chosen[row].token, those[row].token) << "row " << row << " of step " << step;
          EXPECT_EQ(chosen[row].mass, those[row].mass) << "row " << row << " of step " << step;
        }
      }
      if (step < kSteps) {
        ASSERT_TRUE(backend->begin_head(batch, h));
      }
    }
  }
}

}  // namespace
}  // namespace nibble
