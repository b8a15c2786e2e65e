// Many rows at once give what each gives alone, on any number of threads.
#include "engine/sample/row_sampler.h"

#include <gtest/gtest.h>

#include <random>

namespace nibble {
namespace {

TEST(RowSampler, RowsDoNotDependOnEachOtherOrOnThreads) {
  constexpr int32_t kVocab = 70000;
  constexpr size_t kRows = 23;
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<float> logits(kRows * kVocab);
  for (float& logit : logits) logit = normal(random);
  logits[5 * kVocab + 77] = std::numeric_limits<float>::quiet_NaN();
  std::vector<SamplingParams> params(kRows);
  for (size_t i = 0; i < kRows; ++i)
    params[i] = {.temperature = i % 3 == 0 ? 0.0 : 1.1, .top_p = 0.9, .seed = i, .top_logprobs = 2};

  Sampler alone(kVocab, Sampler::all_sampleable(kVocab));
  for (const int threads : {1, 4}) {
    RowSampler sampler(Sampler(kVocab, Sampler::all_sampleable(kVocab)), threads);
    std::vector<SampleRow> rows(kRows);
    for (size_t i = 0; i < kRows; ++i) {
      rows[i].logits = std::span(logits).subspan(i * kVocab, kVocab);
      rows[i].choice = Sampler::choice_of(params[i], {}, 100 + i);
    }
    sampler.sample(rows);
    for (size_t i = 0; i < kRows; ++i) {
      SCOPED_TRACE(i);
      ASSERT_TRUE(rows[i].sampled);
      const auto expected = alone.sample(rows[i].logits, params[i], {}, 100 + i);
      ASSERT_EQ(rows[i].sampled->ok(), i != 5);
      if (i == 5) continue;
      EXPECT_EQ(rows[i].sampled->value().token, expected.value().token);
      EXPECT_EQ(rows[i].sampled->value().logprobs->chosen.logprob,
                expected.value().logprobs->chosen.logprob);
    }
  }
}

}  // namespace
}  // namespace nibble
