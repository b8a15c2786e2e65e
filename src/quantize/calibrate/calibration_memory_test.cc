// The memory that a calibration plans and the progress that it tells, in numbers.
#include <gtest/gtest.h>

#include "quantize/testing/calibration_runs.h"

namespace nibble {
namespace {

using namespace test;

/// These are weights of the small checkpoint, whose layer of attention is the larger one.
constexpr int64_t kAttention = (128 + 32 + 32) * kHidden + kHidden * 64;
constexpr int64_t kDeltaNet = (64 + 32 + 2 + 2) * kHidden + kHidden * 32;
constexpr int64_t kMlp = 3 * kWidth * kHidden;
constexpr int64_t kRouter = kExperts * kHidden;

CalibrationMemory memory_of(const Model& model, const CalibrationData& data,
                            CalibrationOptions wanted) {
  return Calibration::start(*model.checkpoint, model.weights, model.config, data, std::move(wanted))
      .value()
      .memory();
}

TEST(CalibrationMemory, IsOfTheLargestLayerAndOfTheStatesOfAllTokens) {
  const CalibrationData data = random_data();
  for (const auto layout : {Layout::fused_experts, Layout::separate_experts, Layout::dense}) {
    const Model model(layout);
    const bool dense = layout == Layout::dense;
    const CalibrationMemory memory = memory_of(model, data, options(SecondMoment::full));
    EXPECT_EQ(memory.hidden_bytes, data.tokens() * kHidden * 2);
    EXPECT_EQ(memory.layer_bytes,
              2 * (kAttention + (dense ? kMlp : kRouter + (kExperts + 1) * kMlp)));
    const int64_t wide = moment_count(SecondMoment::full, kHidden),
                  narrow = moment_count(SecondMoment::full, kWidth);
    EXPECT_EQ(memory.moment_bytes,
              8 * (dense ? 3 * wide + narrow : 2 * wide + (kExperts + 1) * (wide + narrow)));
    EXPECT_EQ(memory.sweep_bytes, 0);
    EXPECT_EQ(memory.weight_bytes, 0);
    EXPECT_EQ(memory.total(), memory.hidden_bytes + memory.moment_bytes + memory.layer_bytes);
  }
}

/// Each linear that sees a token has a weight of it; of the routed experts those that got it do.
TEST(CalibrationMemory, OfASweepIsItsStatesAndALayerInF32) {
  const CalibrationData data = random_data();
  for (const auto layout : {Layout::fused_experts, Layout::dense}) {
    const Model model(layout);
    const bool dense = layout == Layout::dense;
    CalibrationOptions wanted = options(SecondMoment::full);
    wanted.fisher = FisherOptions{};
    const CalibrationMemory memory = memory_of(model, data, std::move(wanted));
    const int64_t linears = 4 + 5 + 1 + 2 * (dense ? 3 : 3 + 2 * 3);
    EXPECT_EQ(memory.weight_bytes, data.tokens() * linears * 2 * 4);
    EXPECT_EQ(memory.sweep_bytes,
              data.tokens() * kHidden * (2 + 1 + 1) * 4 +
                  2 * std::max(memory.layer_bytes, int64_t{2} * kVocab * kHidden));
    EXPECT_EQ(memory.total(),
              memory.hidden_bytes + memory.weight_bytes +
                  std::max(memory.moment_bytes + memory.layer_bytes, memory.sweep_bytes));
  }
}

TEST(CalibrationMemory, TooLittleIsRefusedWithItsParts) {
  const Model model(Layout::dense);
  const CalibrationData data = random_data();
  CalibrationOptions wanted = options(SecondMoment::full);
  wanted.memory_bytes_max = 1000;
  const auto refused =
      Calibration::start(*model.checkpoint, model.weights, model.config, data, std::move(wanted));
  ASSERT_FALSE(refused.ok());
  const int64_t hidden = data.tokens() * kHidden * 2, layer = 2 * (kAttention + kMlp),
                sums = 8 * moment_count(SecondMoment::full, kHidden);
  EXPECT_NE(refused.error().message.find(concat("expected ", hidden + layer + sums,
                                                " bytes: hidden states ", hidden, ", sums ", sums,
                                                ", a layer ", layer,
                                                ", weights of tokens 0, or before "
                                                "that 0 to find them, found 1000 bytes")),
            std::string::npos)
      << refused.error().message;
}

/// As many sums are taken at once as the limit has room for.
TEST(CalibrationMemory, ALimitIsMetByMoreParts) {
  const Model model(Layout::fused_experts);
  const CalibrationData data = random_data();
  const CalibrationMemory free = memory_of(model, data, options(SecondMoment::full));
  for (const int64_t limit : {free.total(), free.total() - 1, free.total() * 3 / 4}) {
    CalibrationOptions wanted = options(SecondMoment::full);
    wanted.memory_bytes_max = limit;
    const auto run =
        Calibration::start(*model.checkpoint, model.weights, model.config, data, std::move(wanted));
    ASSERT_TRUE(run.ok()) << run.error().message;
    EXPECT_LE(run.value().memory().total(), limit);
    EXPECT_EQ(run.value().parts() > 3, limit < free.total());
  }
}

TEST(CalibrationProgress, EndsAtAllRowsOfAllParts) {
  const Model model(Layout::dense);
  const CalibrationData data = random_data();
  for (const bool weighed : {false, true}) {
    int64_t last = 0, total = 0;
    CalibrationOptions wanted = options(SecondMoment::blocks);
    if (weighed) wanted.fisher = FisherOptions{};
    wanted.progress = [&](int64_t done, int64_t all) {
      EXPECT_GT(done, last);
      last = done;
      total = all;
    };
    gather(model, data, std::move(wanted), {});
    EXPECT_EQ(total, data.tokens() * (3 + (weighed ? 2 + 1 + 2 : 0)));
    EXPECT_EQ(last, total);
  }
}

TEST(CalibrationReport, NamesExpertsWithFewTokensAndTheLeastAndMostOfALayer) {
  const Model model(Layout::fused_experts);
  const CalibrationData data = random_data();
  int64_t few = 0;
  for (const bool all : {false, true}) {
    CalibrationOptions wanted = options(SecondMoment::none);
    wanted.tokens_few = all ? few + 1 : 0;
    Calibration run =
        Calibration::start(*model.checkpoint, model.weights, model.config, data, std::move(wanted))
            .value();
    for (int part = 0; part < run.parts(); ++part) ASSERT_TRUE(run.run(part).ok());
    const Json json = run.json();
    EXPECT_EQ(json.find("backend")->as_string(), "cpu");
    EXPECT_EQ(json.find("inputs_with_nan_or_infinity")->as_int(), 0);
    std::map<std::string, std::pair<int64_t, int64_t>> layers;
    std::vector<std::string> least;
    for (const ExpertTokens& expert : run.expert_tokens()) {
      const std::string layer = expert.module.substr(0, expert.module.rfind('.'));
      auto& range = layers.try_emplace(layer, expert.tokens, expert.tokens).first->second;
      range = {std::min(range.first, expert.tokens), std::max(range.second, expert.tokens)};
    }
    ASSERT_EQ(layers.size(), 2U);
    const Json& shown = *json.find("tokens_of_experts_least_and_most");
    few = layers.begin()->second.first;
    for (const auto& [layer, range] : layers) {
      EXPECT_LT(range.first, range.second);
      EXPECT_EQ(shown.find(layer)->dump(), concat("[", range.first, ",", range.second, "]"));
      few = std::min(few, range.first);
    }
    for (const ExpertTokens& expert : run.expert_tokens())
      if (all && expert.tokens <= few)
        least.push_back(concat(R"({"expert":")", expert.module, R"(","tokens":)", few, "}"));
    const Json* named = json.find(concat("experts_below_", all ? few + 1 : 0, "_tokens"));
    ASSERT_NE(named, nullptr);
    ASSERT_EQ(named->as_array().size(), least.size());
    for (size_t i = 0; i < least.size(); ++i) EXPECT_EQ(named->as_array()[i].dump(), least[i]);
  }
}

}  // namespace
}  // namespace nibble
