// Sampling from short lists against sampling from whole rows: whatever a list decides is the same
// token or the same error, over random rows, ties, impossible and broken logits, masks and all
// parameters, with masses as wrong as they may be; and lists decide what they should.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "engine/sample/sampler.h"
#include "engine/sample/token_bits.h"

namespace nibble {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int32_t pick(int32_t least, int32_t most) {
    return std::uniform_int_distribution<int32_t>(least, most)(engine_);
  }
  bool chance(double p) { return std::bernoulli_distribution(p)(engine_); }
  /// Scaled here, as a distribution of deviation 0 is not allowed.
  float normal(float deviation) {
    return deviation * std::normal_distribution(0.0F, 1.0F)(engine_);
  }
  template <typename T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[pick(0, static_cast<int32_t>(list.size()) - 1)];
  }

 private:
  std::mt19937 engine_;
};

std::vector<float> random_row(Random& random, int32_t vocab) {
  const float deviation = random.one_of({0.0F, 0.3F, 2.0F, 10.0F, 1000.0F});
  const float grid = random.one_of({0.0F, 0.0F, 0.5F, 4.0F});  // ties
  const double impossible = random.one_of({0.0, 0.0, 0.2, 0.95, 1.0});
  std::vector<float> row(static_cast<size_t>(vocab));
  for (float& logit : row) {
    logit = random.normal(deviation);
    if (grid > 0.0F) logit = std::round(logit / grid) * grid;  // -0 among them
    if (random.chance(impossible)) logit = -kInfinity;
  }
  if (random.chance(0.3)) row[static_cast<size_t>(random.pick(0, vocab - 1))] = 3 * deviation;
  if (random.chance(0.05))
    row[static_cast<size_t>(random.pick(0, vocab - 1))] =
        random.one_of({kInfinity, std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest()});
  return row;
}

std::vector<uint32_t> random_bits(Random& random, int32_t vocab) {
  const double banned = random.one_of({0.0, 0.1, 0.9, 1.0});
  std::vector<uint32_t> bits = Sampler::all_sampleable(vocab);
  for (int32_t token = 0; token < vocab; ++token)
    if (random.chance(banned)) forbid_token(bits, token);
  return bits;
}

SamplingParams random_params(Random& random, int32_t vocab) {
  SamplingParams params;
  params.temperature = random.one_of({0.0, 1.0, 1.0, 0.6, 1.7, 2e-5, 0.01, 50.0, 1e5});
  params.top_k = random.one_of({0, 0, 1, 3, 20, vocab, vocab + 1});
  params.top_p = random.one_of({1.0, 1.0, 0.95, 0.5, 0.999999, 0.0});
  params.min_p = random.one_of({0.0, 0.0, 0.05, 1.0});
  if (random.chance(0.3)) params.presence_penalty = random.one_of({1.5, -0.5});
  if (random.chance(0.2)) params.frequency_penalty = random.one_of({0.2, -0.2});
  if (random.chance(0.2)) params.repetition_penalty = random.one_of({1.2, 0.8});
  if (random.chance(0.2))
    for (int i = random.pick(1, 3); i > 0; --i)
      params.logit_bias.push_back(
          {random.pick(0, vocab + 1), random.one_of({-100.0, -1.0, 0.5, 30.0})});
  params.seed = static_cast<uint64_t>(random.pick(0, 1 << 20));
  params.choice = static_cast<uint32_t>(random.pick(0, 2));
  return params;
}

std::vector<int32_t> random_tokens(Random& random, int32_t vocab) {
  std::vector<int32_t> tokens(static_cast<size_t>(random.pick(0, 40)));
  for (int32_t& token : tokens) token = random.pick(0, vocab - 1);
  return tokens;
}

TEST(SamplerShortList, WhatItDecidesIsWhatTheWholeRowGives) {
  Random random(1);
  int64_t decided = 0;
  int64_t open = 0;
  for (int round = 0; round < 60000; ++round) {
    const int32_t vocab = random.one_of({1, 2, 31, 64, 65, 200});
    const std::vector<float> row = random_row(random, vocab);
    const auto sampleable =
        random.chance(0.5) ? Sampler::all_sampleable(vocab) : random_bits(random, vocab);
    const auto mask = random.chance(0.6) ? std::vector<uint32_t>() : random_bits(random, vocab);
    const SamplingParams params = random_params(random, vocab);
    const auto prompt = random_tokens(random, vocab);
    const auto generated = random_tokens(random, vocab);
    const TokenHistory history{prompt, generated};
    const auto position = static_cast<uint64_t>(round);
    Sampler sampler(vocab, sampleable);
    OwnedShortList list =
        OwnedShortList::of(row, sampleable, Sampler::draw_of(params, position),
                           random.one_of({1, 2, 8, 64}), random.one_of({1, 4, 64}));
    list.perturb(random.one_of({-0.95, 0.0, 0.95}));
    const auto found = sampler.sample(list.view(), params, history, position, mask);
    ++(found ? decided : open);
    if (!found) continue;
    const auto expected = sampler.sample(row, params, history, position, mask);
    ASSERT_EQ(found->ok(), expected.ok()) << "round " << round;
    if (expected.ok()) {
      ASSERT_EQ(found->value().token, expected.value().token) << "round " << round;
      ASSERT_FALSE(found->value().logprobs);
    } else {
      ASSERT_EQ(found->error().code, expected.error().code) << "round " << round;
      ASSERT_EQ(found->error().message, expected.error().message);
    }
  }
  EXPECT_GT(decided, 15000);
  EXPECT_GT(open, 5000);
}

/// Nuclei that end within a hair of a border between two tokens, with what is not listed masked or
/// not.
TEST(SamplerShortList, LeavesBordersOfNucleiOpen) {
  constexpr int32_t kVocab = 300;
  constexpr int32_t kListed = 32;
  Random random(3);
  const auto sampleable = Sampler::all_sampleable(kVocab);
  Sampler sampler(kVocab, sampleable);
  int decided = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<float> row(kVocab);
    for (float& logit : row) logit = random.normal(2.0F);
    const auto all = OwnedShortList::of(row, sampleable, {}, kVocab, 1);
    SamplingParams params{.seed = 5};
    if (random.chance(0.3)) params.top_k = kListed;
    std::vector<uint32_t> mask;
    if (params.top_k == 0 && random.chance(0.5)) {
      mask = sampleable;
      for (size_t i = kListed; i < kVocab; ++i)
        if (random.chance(0.9)) forbid_token(mask, all.tokens[i]);
    }
    const int32_t border = random.pick(1, kListed - 1);
    double total = 0.0;
    double before = 0.0;
    for (int32_t i = 0; i < kVocab; ++i) {
      const auto at = static_cast<size_t>(i);
      if (!mask.empty() && !has_token(mask, all.tokens[at])) continue;
      const double weight = std::exp(double{all.logits[at]} - double{all.logits[0]});
      if (i < border) before += weight;
      if (params.top_k == 0 || i < params.top_k) total += weight;
    }
    params.top_p = before / total * (1.0 + random.one_of({0.0, 1e-12, -1e-12, 3e-7, -3e-7}));
    const auto position = static_cast<uint64_t>(round);
    auto list = OwnedShortList::of(row, sampleable, Sampler::draw_of(params, position), kListed, 1);
    list.perturb(random.one_of({-0.95, 0.95}));
    const auto found = sampler.sample(list.view(), params, {}, position, mask);
    if (!found) continue;
    ++decided;
    ASSERT_EQ(found->value().token, sampler.sample(row, params, {}, position, mask).value().token)
        << "round " << round << ", " << (mask.empty() ? "plain" : "masked");
  }
  EXPECT_LT(decided, 1000);
}

/// Rows of many tokens, as a model's are; how many lists of 64 suffice.
double share_decided(const SamplingParams& params, float deviation) {
  constexpr int32_t kVocab = 20000;
  constexpr int kRows = 100;
  Random random(2);
  const auto sampleable = Sampler::all_sampleable(kVocab);
  Sampler sampler(kVocab, sampleable);
  int decided = 0;
  const std::vector<int32_t> said = {1, 2, 3, 2};
  for (int i = 0; i < kRows; ++i) {
    std::vector<float> row(kVocab);
    for (float& logit : row) logit = random.normal(deviation);
    const auto position = static_cast<uint64_t>(i);
    OwnedShortList list =
        OwnedShortList::of(row, sampleable, Sampler::draw_of(params, position), 64, 64);
    list.perturb(i % 2 == 0 ? 0.95 : -0.95);
    const auto found = sampler.sample(list.view(), params, {said, said}, position);
    if (!found) continue;
    ++decided;
    EXPECT_EQ(found->value().token,
              sampler.sample(row, params, {said, said}, position).value().token);
  }
  return static_cast<double>(decided) / kRows;
}

TEST(SamplerShortList, UsualParametersNeedNoWholeRow) {
  constexpr float kPeaked = 5.0F;
  EXPECT_EQ(share_decided({.temperature = 0.0}, kPeaked), 1.0);
  EXPECT_EQ(share_decided({.temperature = 0.7, .top_k = 20, .top_p = 0.95}, 1.0F), 1.0);
  EXPECT_EQ(share_decided({.top_k = 20, .top_p = 0.95, .presence_penalty = 1.5}, kPeaked), 1.0);
  EXPECT_EQ(share_decided({.min_p = 0.2}, kPeaked), 1.0);
  EXPECT_GT(share_decided({.temperature = 0.7, .top_p = 0.8}, kPeaked), 0.98);
  EXPECT_GT(share_decided({}, kPeaked), 0.98);
  EXPECT_GT(share_decided({.temperature = 1.3}, 3.0F), 0.75);
}

TEST(SamplerShortList, LogprobsAndRisenLogitsNeedTheWholeRow) {
  const std::vector<float> row = {1.0F, 5.0F, 2.0F, 4.0F, 3.0F};
  const auto sampleable = Sampler::all_sampleable(5);
  Sampler sampler(5, sampleable);
  const auto list = OwnedShortList::of(row, sampleable, {}, 3, 2);
  EXPECT_EQ(list.tokens, (std::vector<int32_t>{1, 3, 4}));
  const auto decides = [&](const SamplingParams& params, std::span<const int32_t> said = {},
                           std::span<const uint32_t> mask = {}) {
    return sampler.sample(list.view(), params, {{}, said}, 0, mask).has_value();
  };
  EXPECT_TRUE(decides({.temperature = 0.0}));
  EXPECT_FALSE(decides({.temperature = 0.0, .top_logprobs = 0}));
  EXPECT_TRUE(decides({.temperature = 0.0, .logit_bias = {{4, 9.0}, {0, -9.0}, {7, 9.0}}}));
  EXPECT_FALSE(decides({.temperature = 0.0, .logit_bias = {{0, 0.5}}}));
  EXPECT_FALSE(decides({.temperature = 0.0, .repetition_penalty = 0.9}));
  const std::vector<int32_t> best_three = {1, 3, 4};
  EXPECT_TRUE(decides({.temperature = 0.0, .presence_penalty = 1.5}, best_three));
  EXPECT_FALSE(decides({.temperature = 0.0, .presence_penalty = 4.0}, best_three));
  const std::vector<uint32_t> others = {0b00101U};
  EXPECT_FALSE(decides({.temperature = 0.0}, {}, others));
}

}  // namespace
}  // namespace nibble
