// The weights of tokens: words that ask for them, their scale, the draws of labels, and that no cut
// of the work leaves a trace. Gradients themselves: gradient_golden_test.cc.
#include "quantize/gradient/fisher_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "quantize/gradient/dense_linear.h"
#include "quantize/gradient/gradient_squares.h"
#include "quantize/testing/golden_samples.h"
#include "tensor/float_formats.h"

namespace nibble {
namespace {

using gradient::GradientSquares;
using gradient::Rows;

TEST(SecondMoments, WordsAreReadOrRefused) {
  EXPECT_FALSE(parse_second_moments("plain").value().has_value());
  EXPECT_EQ(parse_second_moments("fisher").value()->plain_share, FisherOptions{}.plain_share);
  EXPECT_EQ(parse_second_moments("fisher:0").value()->plain_share, 0.0);
  EXPECT_EQ(parse_second_moments("fisher:0.25").value()->plain_share, 0.25);
  EXPECT_EQ(second_moments_text(*parse_second_moments("fisher:0.25").value()), "fisher:0.25");
  for (const char* bad : {"", "Fisher", "fisher:", "fisher:-1", "fisher:nan", "fisher:inf",
                          "fisher:1001", "fisher:0.1x", "fisher: 0.1", "fisher:0,1"}) {
    const auto read = parse_second_moments(bad);
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_EQ(read.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(read.error().message.find("fisher: and a share from 0 to 1000"), std::string::npos)
        << read.error().message;
  }
}

Rows one_column(std::vector<float> values) {
  Rows rows(static_cast<int64_t>(values.size()), 1);
  rows.values = std::move(values);
  return rows;
}

const LinearSource kLinear = {.module = "l"};

TEST(GradientSquares, KeepTheTraceAndAddThePlainShare) {
  GradientSquares squares([](const std::string&) { return true; });
  // Squares 1, 9 and, of a second draw, 3 more for the first; inputs 2 and 1: the sum of |x|^2 is
  // 5, and with the squares (1 + 3) 4 + 9 = 25.
  squares.add(kLinear, one_column({2, 1}), one_column({1, -3}), {}, {.first_token = 0});
  squares.add(kLinear, one_column({2, 1}), one_column({std::sqrt(3.0F), 0}), {},
              {.first_token = 0, .draw = 1});
  const FisherWeights weights = std::move(squares).weights(0.5);
  const TokenWeights& found = weights.at("l");
  EXPECT_TRUE(found.tokens.empty());
  EXPECT_NEAR(found.of(0), 4.0 / 5 + 0.5, 1e-6);
  EXPECT_NEAR(found.of(1), 9.0 / 5 + 0.5, 1e-6);
  EXPECT_EQ(found.other, 0.5F);
}

TEST(GradientSquares, KnowTheTokensOfAnExpert) {
  GradientSquares squares([](const std::string&) { return true; });
  const std::vector<int32_t> first = {1, 4}, second = {0};
  squares.add(kLinear, one_column({1, 1}), one_column({1, 2}), first, {.first_token = 10});
  squares.add(kLinear, one_column({1}), one_column({3}), second, {.first_token = 20});
  const FisherWeights weights = std::move(squares).weights(0);
  const TokenWeights& found = weights.at("l");
  EXPECT_EQ(found.tokens, (std::vector<int32_t>{11, 14, 20}));
  EXPECT_NEAR(found.of(14) / found.of(11), 4.0, 1e-6);
  EXPECT_NEAR(found.of(20) / found.of(11), 9.0, 1e-6);
  EXPECT_EQ(found.of(12), 0.0F);
}

TEST(GradientSquares, WithoutAGradientTokensCountAlike) {
  GradientSquares squares([](const std::string& module) { return module == "l"; });
  const float bad = std::numeric_limits<float>::quiet_NaN();
  squares.add(kLinear, one_column({1, 1}), one_column({0, bad}), {}, {.first_token = 0});
  squares.add({.module = "other"}, one_column({1}), one_column({1}), {}, {.first_token = 0});
  const FisherWeights weights = std::move(squares).weights(0.5);
  EXPECT_EQ(weights.size(), 1U);
  EXPECT_EQ(weights.at("l").weights, (std::vector<float>{1, 1}));
}

class FisherSweepOf : public testing::Test {
 protected:
  FisherWeights gather(const FisherOptions& options, const LayerWatch& watch = {}) const {
    return gather_fisher_weights({.weights = model_.weights,
                                  .config = model_.config,
                                  .samples = samples_,
                                  .wants = [](const std::string&) { return true; },
                                  .options = options,
                                  .watch = watch})
        .value();
  }

  Golden model_ = load_golden("model/moe-fused");
  LayerSamples samples_ = test::golden_samples(model_);
};

TEST_F(FisherSweepOf, GroupsAndThreadsLeaveNoTrace) {
  int64_t rows = 0;
  const FisherWeights whole =
      gather({.label_draws = 2, .threads = 1}, {.rows_done = [&](int64_t more) { rows += more; }});
  const FisherWeights parts = gather({.label_draws = 2, .states_bytes_max = 1, .threads = 3});
  ASSERT_EQ(whole.size(), parts.size());
  for (const auto& [module, weights] : whole) {
    EXPECT_EQ(weights.weights, parts.at(module).weights) << module;
    EXPECT_EQ(weights.tokens, parts.at(module).tokens) << module;
  }
  int64_t tokens = 0;
  for (const int64_t length : samples_.lengths) tokens += length;
  EXPECT_EQ(rows, fisher_rows(tokens, model_.config));
}

/// Weights and caches serve many rows at once: short samples are not computed one by one.
TEST_F(FisherSweepOf, ShortSamplesShareAPass) {
  int64_t tokens = 0;
  for (const int64_t length : samples_.lengths) tokens += length;
  ASSERT_GT(samples_.lengths.size(), 1U);
  ASSERT_LE(tokens, 1024);
  std::vector<int64_t> passes;
  ASSERT_TRUE(gather_fisher_weights({.weights = model_.weights,
                                     .config = model_.config,
                                     .samples = samples_,
                                     .wants = [](const std::string&) { return false; },
                                     .options = {.label_draws = 2},
                                     .also_seen =
                                         [&](const gradient::DenseLinear& linear, const Rows& input,
                                             const Rows&, std::span<const int32_t>) {
                                           if (linear.source().module.ends_with(".o_proj"))
                                             passes.push_back(input.count);
                                         }})
                  .ok());
  ASSERT_FALSE(passes.empty());
  for (const int64_t rows : passes) EXPECT_EQ(rows, tokens);
}

TEST_F(FisherSweepOf, TheSeedDrawsTheLabels) {
  const std::string head = model_.weights.head().module;
  EXPECT_EQ(gather({.seed = 3}).at(head).weights, gather({.seed = 3}).at(head).weights);
  EXPECT_NE(gather({.seed = 3}).at(head).weights, gather({.seed = 4}).at(head).weights);
}

/// The square of the gradient of the logits is 1 - 2 p_y + sum p^2, on average over y: 1 - sum p^2.
/// The probabilities are those that transformers finds.
TEST_F(FisherSweepOf, LabelsAreDrawnFromTheModel) {
  const FisherWeights weights = gather({.plain_share = 0, .label_draws = 150});
  const std::vector<float>& found = weights.at(model_.weights.head().module).weights;
  std::vector<double> expected;
  const auto vocabulary = static_cast<size_t>(model_.config.vocab_rows);
  for (const GoldenSequence& sequence : model_.sequences)
    for (size_t t = 0; t < sequence.ids.size(); ++t) {
      double total = 0, squares = 0;
      for (size_t i = 0; i < vocabulary; ++i) {
        const double e = std::exp(static_cast<double>(sequence.logits[t * vocabulary + i]));
        total += e;
        squares += e * e;
      }
      expected.push_back(1.0 - squares / (total * total));
    }
  ASSERT_EQ(found.size(), expected.size());
  double found_sum = 0, expected_sum = 0;
  for (size_t t = 0; t < found.size(); ++t) {
    found_sum += static_cast<double>(found[t]);
    expected_sum += expected[t];
  }
  for (size_t t = 0; t < found.size(); ++t)
    EXPECT_NEAR(static_cast<double>(found[t]) / found_sum * expected_sum, expected[t], 0.16) << t;
}

TEST_F(FisherSweepOf, StopsWhenAsked) {
  const auto stopped = gather_fisher_weights({.weights = model_.weights,
                                              .config = model_.config,
                                              .samples = samples_,
                                              .wants = [](const std::string&) { return true; },
                                              .watch = {.check = []() -> Result<void> {
                                                return Error{ErrorCode::cancelled, "stop"};
                                              }}});
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace nibble
