// Drafts of both kinds, and caches in other formats, change no bit of an answer: engine_bits.h.
#include "cli/testing/engine_bits.h"

namespace nibble::engine_bits {

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

void EngineBits::expect_the_same_however_it_runs(const Kept& kept) {
  const auto run_kept = [&](Case what) {
    what.state = kept.state;
    what.kv = kept.kv;
    what.folder = kept.folder;
    what.activations = kept.activations;
    what.products = kept.products;
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
  const Outcome drafted =
      run_kept({.count = 9, .arrive = 1, .drafter = std::make_shared<NearlyRight>(expected)});
  expect_same(drafted.answers, 9, expected);
  EXPECT_GT(drafted.engine.drafts_right, 0);
  if (kept.model_drafts == 0) return;
  const Outcome by_model = run_kept({.count = 6, .rounds = 2, .model_drafts = kept.model_drafts});
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

/// Nor does how the layer is loaded: its weights in fewer bits, its head with fewer tokens.
TEST_P(EngineBits, WithDraftsOfALayerInFewerBits) {
  const DraftWeights variants[] = {
      {.format = WeightFormat::nvfp4},
      {.format = WeightFormat::fp8_tensor, .tokens = TokenMap{.count = 512}}};
  for (const DraftWeights& weights : variants) {
    SCOPED_TRACE(weights.tokens.has_value());
    const Outcome drafted =
        run({.count = 9, .arrive = 1, .rounds = 2, .model_drafts = 3, .draft_weights = weights});
    expect_alone(drafted.answers, 9);
    EXPECT_GT(drafted.engine.drafted, drafted.engine.drafts_right);
    EXPECT_GT(drafted.engine.drafts_right, 0);
  }
}

TEST_P(EngineBits, WithDraftsOfTheModelFromWhateverTheCacheHolds) {
  const Outcome warm = run({.rounds = 2, .model_drafts = 3});
  expect_alone(warm.answers, 6);
  EXPECT_GE(warm.cache.hits, 5);
  Case tight = short_of_pages(2);
  tight.model_drafts = 2;
  const Outcome restored = run(tight);
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

}  // namespace nibble::engine_bits
