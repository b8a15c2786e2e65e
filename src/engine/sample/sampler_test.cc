// The sampler against an independent formulation: full distributions as maps, every rule by its
// definition over sets, and frequencies of many draws against the exact probabilities.
#include "engine/sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "engine/sample/counter_random.h"

namespace nibble {
namespace {

constexpr int32_t kVocab = 40;

double uniform_at(uint64_t seed, uint32_t choice, uint64_t position) {
  return static_cast<double>(random_bits_at(seed, choice, position)) * 0x1.0p-64;
}

std::vector<float> random_logits(std::mt19937& random) {
  std::normal_distribution<float> normal(0.0F, 2.0F);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

/// The distribution by definition: no candidate list, no sorting of the whole.
std::map<int32_t, double> expected_distribution(const std::vector<float>& logits,
                                                const SamplingParams& params,
                                                const TokenHistory& history,
                                                const std::set<int32_t>& banned) {
  std::map<int32_t, double> score;
  for (int32_t t = 0; t < kVocab; ++t)
    if (!banned.contains(t)) score[t] = logits[static_cast<size_t>(t)];
  for (const LogitBias& bias : params.logit_bias)
    if (score.contains(bias.token)) score[bias.token] += bias.bias;
  for (auto& [token, value] : score) {
    const auto uses = std::count(history.generated.begin(), history.generated.end(), token);
    const auto prompt_uses = std::count(history.prompt.begin(), history.prompt.end(), token);
    if (uses + prompt_uses > 0)
      value = value > 0 ? value / params.repetition_penalty : value * params.repetition_penalty;
    value -= params.frequency_penalty * static_cast<double>(uses);
    if (uses > 0) value -= params.presence_penalty;
  }
  const auto softmax = [&] {
    std::map<int32_t, double> p;
    double total = 0.0;
    for (const auto& [token, value] : score)
      total += p[token] = std::exp(value / params.temperature);
    for (auto& [token, value] : p) value /= total;
    return p;
  };
  auto p = softmax();
  double p_max = 0.0;
  for (const auto& [token, value] : p) p_max = std::max(p_max, value);
  std::erase_if(score, [&](const auto& item) { return p[item.first] < params.min_p * p_max; });
  const auto rank = [&](int32_t token) {  // how many are better
    return std::count_if(score.begin(), score.end(), [&](const auto& item) {
      return item.second > score[token] || (item.second == score[token] && item.first < token);
    });
  };
  std::set<int32_t> drop;
  if (params.top_k > 0)
    for (const auto& [token, value] : score)
      if (rank(token) >= params.top_k) drop.insert(token);
  for (const int32_t token : drop) score.erase(token);
  p = softmax();
  drop.clear();
  for (const auto& [token, value] : score) {
    double mass_before = 0.0;
    for (const auto& [other, q] : p)
      if (rank(other) < rank(token)) mass_before += q;
    if (rank(token) > 0 && mass_before >= params.top_p) drop.insert(token);
  }
  for (const int32_t token : drop) score.erase(token);
  return softmax();
}

std::vector<uint32_t> bits_without(const std::set<int32_t>& banned) {
  std::vector<uint32_t> bits = Sampler::all_sampleable(kVocab);
  for (const int32_t t : banned) bits[static_cast<size_t>(t) / 32] &= ~(1U << (t % 32));
  return bits;
}

TEST(CounterRandom, MatchesThePublishedVectors) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRandom, DependsOnEachOfItsArguments) {
  std::set<uint64_t> values;
  for (uint64_t seed : {0, 1, 7})
    for (uint32_t choice : {0, 1, 7})
      for (uint64_t position : {0, 1, 7}) values.insert(random_bits_at(seed, choice, position));
  EXPECT_EQ(values.size(), 27U);
  EXPECT_NE(random_bits_at(1, 0, uint64_t{1} << 32), random_bits_at(1, 0, 0));
  EXPECT_NE(random_bits_at(uint64_t{1} << 32, 0, 0), random_bits_at(0, 0, 0));
}

/// The mass before a token decides: one that begins exactly at top_p is out. Sums of halves and
/// quarters are exact.
TEST(Sampler, TopPLeavesOutWhatBeginsExactlyThere) {
  constexpr int32_t kEqual = 4;
  const std::vector<float> logits(kEqual, 1.0F);
  Sampler sampler(kEqual, Sampler::all_sampleable(kEqual));
  for (const auto& [top_p, kept] : {std::pair(0.25, 1), {0.5, 2}, {0.500001, 3}, {0.75, 3}}) {
    std::set<int32_t> seen;
    for (uint64_t position = 0; position < 200; ++position)
      seen.insert(sampler.sample(logits, {.top_p = top_p, .seed = 1}, {}, position).value().token);
    std::set<int32_t> expected;
    for (int32_t token = 0; token < kept; ++token) expected.insert(token);
    EXPECT_EQ(seen, expected) << top_p;
  }
}

TEST(Sampler, FrequenciesMatchTheExactDistribution) {
  std::mt19937 random(1);
  const std::vector<int32_t> prompt = {1, 2, 3, 3, 4};
  const std::vector<int32_t> generated = {3, 5, 5, 6};
  const std::set<int32_t> padding = {38, 39};
  const std::set<int32_t> masked = {0, 7};
  std::set<int32_t> banned = padding;
  banned.insert(masked.begin(), masked.end());
  for (int round = 0; round < 24; ++round) {
    const std::vector<float> logits = random_logits(random);
    SamplingParams params{.temperature = 0.5 + 0.1 * round, .seed = 1000U + round};
    if (round % 2) params.top_k = 1 + round / 2;
    if (round % 3) params.top_p = 0.3 + 0.03 * round;
    if (round % 5 == 1) params.min_p = 0.05;
    if (round % 4 == 3) params.repetition_penalty = 1.3;
    if (round % 6 == 5) params.presence_penalty = 0.7;
    if (round % 7 == 6) params.frequency_penalty = 0.4;
    if (round % 8 == 7) params.logit_bias = {{9, 3.0}, {10, -100.0}, {39, 100.0}, {500, 1.0}};
    const TokenHistory history{prompt, generated};
    const auto expected = expected_distribution(logits, params, history, banned);
    Sampler sampler(kVocab, bits_without(padding));
    std::map<int32_t, int> counts;
    constexpr int kDraws = 20000;
    const std::vector<uint32_t> mask = bits_without(masked);
    for (int draw = 0; draw < kDraws; ++draw) {
      const auto token = sampler.sample(logits, params, history, static_cast<uint64_t>(draw), mask);
      ASSERT_TRUE(token.ok());
      ++counts[token.value().token];
    }
    for (const auto& [token, count] : counts)
      ASSERT_TRUE(expected.contains(token)) << "round " << round << " token " << token;
    for (const auto& [token, p] : expected) {
      const double sigma = std::sqrt(p * (1 - p) / kDraws);
      EXPECT_NEAR(counts[token] / double{kDraws}, p, 5 * sigma + 1e-3)
          << "round " << round << " token " << token;
    }
  }
}

TEST(Sampler, TheDrawIsTheInverseOfTheCumulativeDistribution) {
  std::mt19937 random(2);
  const std::vector<float> logits = random_logits(random);
  const SamplingParams params{
      .temperature = 0.8, .top_k = 12, .top_p = 0.9, .seed = 42, .choice = 3};
  const auto expected = expected_distribution(logits, params, {}, {});
  Sampler sampler(kVocab, Sampler::all_sampleable(kVocab));
  for (uint64_t position = 0; position < 500; ++position) {
    const double u = uniform_at(42, 3, position);
    double cumulative = 0.0;
    int32_t wanted = -1;
    for (const auto& [token, p] : expected)
      if (wanted < 0 && (cumulative += p) > u) wanted = token;
    EXPECT_EQ(sampler.sample(logits, params, {}, position).value().token, wanted);
  }
}

/// Many more candidates than are sorted at once.
TEST(Sampler, NucleiOfALargeVocabularyAreExact) {
  constexpr int32_t kRows = 5000;
  std::mt19937 random(8);
  std::normal_distribution<float> normal(0.0F, 1.5F);
  std::vector<float> logits(kRows);
  for (float& logit : logits) logit = std::round(normal(random) * 64.0F) / 64.0F;  // with ties
  std::vector<int32_t> order(kRows);
  for (int32_t token = 0; token < kRows; ++token) order[static_cast<size_t>(token)] = token;
  const auto p = [&](int32_t token) {
    return std::exp(double{logits[static_cast<size_t>(token)]});
  };
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return p(a) > p(b); });
  double total = 0.0;
  for (const int32_t token : order) total += p(token);
  Sampler sampler(kRows, Sampler::all_sampleable(kRows));
  for (const double top_p : {0.02, 0.3, 0.5, 0.8, 0.95, 0.999}) {
    std::set<int32_t> nucleus;
    double mass = 0.0;
    for (size_t i = 0; i < order.size() && mass < top_p * total; ++i) {
      nucleus.insert(order[i]);
      mass += p(order[i]);
    }
    for (uint64_t position = 0; position < 50; ++position) {
      const double target = uniform_at(3, 0, position) * mass;
      double cumulative = 0.0;
      int32_t wanted = -1;
      for (const int32_t token : nucleus)
        if (wanted < 0 && (cumulative += p(token)) > target) wanted = token;
      const SamplingParams params{.top_p = top_p, .seed = 3};
      EXPECT_EQ(sampler.sample(logits, params, {}, position).value().token, wanted)
          << top_p << " at " << position << ", nucleus of " << nucleus.size();
    }
  }
}

TEST(Sampler, GreedyTakesTheLowestIdOfTheBest) {
  std::vector<float> logits(kVocab, 0.0F);
  logits[9] = logits[20] = 5.0F;
  logits[39] = 50.0F;
  Sampler sampler(kVocab, bits_without({39}));
  const SamplingParams greedy{.temperature = 0.0, .top_k = 1, .top_p = 0.1, .min_p = 0.9};
  EXPECT_EQ(sampler.sample(logits, greedy, {}, 0).value().token, 9);
  EXPECT_EQ(sampler.sample(logits, greedy, {}, 0, bits_without({9})).value().token, 20);
  SamplingParams biased = greedy;
  biased.logit_bias = {{4, 6.0}};
  EXPECT_EQ(sampler.sample(logits, biased, {}, 0).value().token, 4);
}

TEST(Sampler, PenaltiesReachEachTokenOnce) {
  std::vector<float> logits(kVocab, -10.0F);
  logits[1] = 4.0F;  // in prompt and generated: 4 / 2 - 1 - 2 * 0.5 = 0
  logits[2] = 1.9F;  // in prompt only: 0.95
  logits[3] = 0.9F;  // unseen
  Sampler sampler(kVocab, Sampler::all_sampleable(kVocab));
  const SamplingParams params{.temperature = 0.0,
                              .presence_penalty = 1.0,
                              .frequency_penalty = 0.5,
                              .repetition_penalty = 2.0};
  const std::vector<int32_t> prompt = {1, 2, 2};
  const std::vector<int32_t> generated = {1, 1};
  EXPECT_EQ(sampler.sample(logits, params, {prompt, generated}, 0).value().token, 2);
  logits[1] = 5.95F;  // 0.975
  EXPECT_EQ(sampler.sample(logits, params, {prompt, generated}, 0).value().token, 1);
  logits[1] = -9.0F;
  logits[2] = -1.0F;  // -2: a negative logit moves away from zero
  logits[3] = -1.5F;
  EXPECT_EQ(sampler.sample(logits, params, {prompt, generated}, 0).value().token, 3);
}

TEST(Sampler, RefusesWhatIsNotANumberAndAnEmptyMask) {
  Sampler sampler(kVocab, bits_without({39}));
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const size_t row : {0, 17, 39}) {
      std::vector<float> logits(kVocab, 0.0F);
      logits[row] = bad;
      EXPECT_EQ(sampler.sample(logits, {}, {}, 0).error().code, ErrorCode::corrupt);
    }
  }
  const std::vector<float> logits(kVocab, 0.0F);
  const std::vector<uint32_t> nothing(2, 0);
  EXPECT_EQ(sampler.sample(logits, {}, {}, 0, nothing).error().code, ErrorCode::invalid_argument);
}

TEST(Sampler, SurvivesExtremeButFiniteInput) {
  std::vector<float> logits(kVocab, -std::numeric_limits<float>::infinity());
  Sampler sampler(kVocab, Sampler::all_sampleable(kVocab));
  logits[5] = std::numeric_limits<float>::max();
  logits[6] = std::numeric_limits<float>::lowest();
  for (const double temperature : {2e-5, 1.0, 1e6})
    EXPECT_EQ(
        sampler.sample(logits, {.temperature = temperature, .top_p = 0.5}, {}, 0).value().token, 5);
}

TEST(Sampler, LogprobsAreThoseOfTheRawLogits) {
  std::mt19937 random(3);
  std::vector<float> logits = random_logits(random);
  logits[39] = 9.0F;  // padding: never listed
  Sampler sampler(kVocab, bits_without({39}));
  const SamplingParams params{.temperature = 0.2, .logit_bias = {{11, 100.0}}, .top_logprobs = 3};
  const auto sampled = sampler.sample(logits, params, {}, 0).value();
  ASSERT_TRUE(sampled.logprobs);
  double total = 0.0;
  for (const float logit : logits) total += std::exp(double{logit});
  EXPECT_EQ(sampled.logprobs->chosen.token, 11);
  EXPECT_NEAR(sampled.logprobs->chosen.logprob, logits[11] - std::log(total), 1e-6);
  ASSERT_EQ(sampled.logprobs->top.size(), 3U);
  double last = 0.0;
  for (const TokenLogprob& entry : sampled.logprobs->top) {
    EXPECT_NE(entry.token, 39);
    EXPECT_LE(entry.logprob, last);
    last = entry.logprob;
  }
  const auto larger = std::count_if(logits.begin(), logits.end() - 1, [&](float logit) {
    return logit > logits[static_cast<size_t>(sampled.logprobs->top[2].token)];
  });
  EXPECT_EQ(larger, 2);
  EXPECT_FALSE(sampler.sample(logits, {}, {}, 0).value().logprobs);
}

}  // namespace
}  // namespace nibble
