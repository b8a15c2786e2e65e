// Layer by layer against the whole model at once; the same sums for every cut into parts; inputs
// shared, experts counted, broken models refused by name.
#include "quantize/calibrate/calibration.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <limits>

#include "backend/reference/reference_backend.h"
#include "model/forward.h"
#include "quantize/testing/calibration_runs.h"

namespace nibble {
namespace {

using namespace test;

/// The whole model in F32, one sample after the other, with the same taps.
Taps whole_model(const Model& model, const CalibrationData& data,
                 const std::map<std::string, InputStatistics>& like) {
  Taps taps;
  for (const auto& [module, seen] : like) taps.want(module, seen.cols, seen.kind);
  auto backend = make_reference_backend(model.weights, model.config, {}).value();
  const auto reserved = backend->reserve({.pages = 16, .state_slots = 1, .rows_max = 1024});
  EXPECT_TRUE(reserved.ok());
  for (const CalibrationSample& sample : data.samples) {
    const auto rows = static_cast<int32_t>(sample.ids.size());
    Batch batch{.tokens = sample.ids};
    for (int axis = 0; axis < 3; ++axis)
      for (int32_t t = 0; t < rows; ++t) batch.positions.push_back(t);
    for (int32_t page = 0; page * kPageTokens < rows; ++page) batch.pages.push_back(page);
    batch.sequences = {{.row_count = rows, .page_count = static_cast<int32_t>(batch.pages.size())}};
    for (int32_t t = 0; t < rows; ++t) batch.logit_rows.push_back(t);
    batch.taps = &taps;
    backend->zero_state(0);
    forward(*backend, model.config, batch);
  }
  return taps;
}

class CalibrationRun : public testing::TestWithParam<Layout> {};

TEST_P(CalibrationRun, IsTheWholeModelButForTheRoundingOfHiddenStates) {
  const Model model(GetParam());
  const CalibrationData data = random_data();
  const auto names = linear_names(model);
  const Gathered found = gather(model, data, options(SecondMoment::blocks), names);
  ASSERT_EQ(found.inputs.size(), names.size());
  const Taps truth = whole_model(model, data, found.inputs);
  for (const auto& [module, seen] : found.inputs) {
    const InputStatistics& expected = *truth.find(module);
    const bool routed = module.find(".experts.") != std::string::npos;
    // A token near a tie may go to another expert when its hidden state is rounded.
    EXPECT_NEAR(static_cast<double>(seen.tokens), static_cast<double>(expected.tokens),
                routed ? 12.0 : 0.0)
        << module;
    double difference = 0, size = 0;
    for (size_t i = 0; i < seen.moment.size(); ++i) {
      difference += std::pow(seen.moment[i] - expected.moment[i], 2);
      size += std::pow(expected.moment[i], 2);
    }
    EXPECT_LT(std::sqrt(difference), (routed ? 0.1 : 0.02) * std::sqrt(size)) << module;
    EXPECT_GE(found.amax.at(module), seen.amax) << module;
  }
}

TEST_P(CalibrationRun, PartsDoNotChangeTheSums) {
  const Model model(GetParam());
  const CalibrationData data = random_data();
  const auto names = linear_names(model);
  const Gathered whole = gather(model, data, options(SecondMoment::full), names);
  const Gathered parts = gather(model, data, options(SecondMoment::full, 70'000), names);
  EXPECT_EQ(whole.parts, 3);
  EXPECT_GT(parts.parts, 4);
  for (const std::string& name : names) {
    EXPECT_EQ(whole.inputs.at(name).moment, parts.inputs.at(name).moment) << name;
    EXPECT_EQ(whole.inputs.at(name).tokens, parts.inputs.at(name).tokens) << name;
    EXPECT_EQ(whole.amax.at(name), parts.amax.at(name)) << name;
  }
}

TEST_P(CalibrationRun, TheNextPartMayRunMeanwhile) {
  const Model model(GetParam());
  const CalibrationData data = random_data();
  const auto names = linear_names(model);
  const Gathered alone = gather(model, data, options(SecondMoment::full, 70'000), names);
  CalibrationOptions wanted = options(SecondMoment::full, 70'000);
  wanted.runner = std::make_shared<Aside>(model, wanted.make_backend);
  const Gathered aside = gather(model, data, std::move(wanted), names);
  EXPECT_EQ(alone.parts, aside.parts);
  for (const std::string& name : names) {
    EXPECT_EQ(alone.inputs.at(name).moment, aside.inputs.at(name).moment) << name;
    EXPECT_EQ(alone.amax.at(name), aside.amax.at(name)) << name;
  }
  for (size_t i = 0; i < alone.experts.size(); ++i)
    EXPECT_EQ(alone.experts[i].tokens, aside.experts[i].tokens) << i;
}

INSTANTIATE_TEST_SUITE_P(Layouts, CalibrationRun,
                         testing::Values(Layout::fused_experts, Layout::separate_experts,
                                         Layout::dense));

TEST(Calibration, CountsTheTokensOfExperts) {
  const Model model(Layout::fused_experts);
  const CalibrationData data = random_data();
  const Gathered found = gather(model, data, options(SecondMoment::none), {});
  ASSERT_EQ(found.experts.size(), 2U * test::kExperts);
  int64_t tokens = 0;
  for (const ExpertTokens& expert : found.experts) tokens += expert.tokens;
  EXPECT_EQ(tokens, data.tokens() * 2 * 2);  // layers, experts of a token
  EXPECT_NE(found.experts[0].module.find("mlp.experts.0"), std::string::npos);
}

TEST(Calibration, OnlyWhatIsRoundedNeedsSums) {
  const Model model(Layout::fused_experts);
  const CalibrationData data = random_data();
  CalibrationOptions wanted = options(SecondMoment::full);
  wanted.wants_moment = [](const std::string& module) {
    return module.find("down_proj") != std::string::npos;
  };
  const auto names = linear_names(model);
  const Gathered found = gather(model, data, std::move(wanted), names);
  for (const auto& [module, seen] : found.inputs)
    EXPECT_EQ(seen.kind == SecondMoment::full, module.ends_with("down_proj")) << module;
}

TEST(Calibration, AnExpertsLargestInputIsThatOfItsLayer) {
  const Model model(Layout::fused_experts);
  const auto names = linear_names(model);
  const Gathered found = gather(model, random_data(), options(SecondMoment::none), names);
  std::map<std::string, std::pair<float, float>> layers;  // reported, largest seen
  for (const auto& [module, seen] : found.inputs) {
    const size_t at = module.find(".experts.");
    if (at == std::string::npos || !module.ends_with("down_proj")) continue;
    auto& [reported, largest] = layers[module.substr(0, at)];
    largest = std::max(largest, seen.amax);
    if (reported != 0) {
      EXPECT_EQ(reported, found.amax.at(module));
    }
    reported = found.amax.at(module);
  }
  ASSERT_EQ(layers.size(), 2U);
  for (const auto& [layer, values] : layers) EXPECT_EQ(values.first, values.second);
}

TEST(Calibration, InputsThatAreNoNumbersAreRefusedByName) {
  const Model model(Layout::fused_experts, [](const std::string& tensor, int64_t, float drawn) {
    return tensor.find("layers.0.input_layernorm") != std::string::npos ? 3e38F : drawn;
  });
  const CalibrationData data = random_data();
  Calibration run = Calibration::start(*model.checkpoint, model.weights, model.config, data,
                                       options(SecondMoment::none))
                        .value();
  const auto done = run.run(0);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::corrupt);
  EXPECT_NE(done.error().message.find("layers.0."), std::string::npos) << done.error().message;
}

/// The user who wants it to end need not wait for the end of a layer.
TEST(Calibration, EndsBetweenPassesOfALayer) {
  const Model model(Layout::dense);
  const CalibrationData data = random_data();
  CalibrationOptions stopped = options(SecondMoment::none);
  int asked = 0;
  stopped.check = [&]() -> Result<void> {
    ++asked;
    return Error{ErrorCode::cancelled, "stop"};
  };
  Calibration run =
      Calibration::start(*model.checkpoint, model.weights, model.config, data, std::move(stopped))
          .value();
  const auto done = run.run(0);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::cancelled);
  EXPECT_EQ(asked, 1);
}

TEST(Calibration, ABackendThatCannotIsRefused) {
  const Model model(Layout::dense);
  const CalibrationData data = random_data();
  CalibrationOptions broken = options(SecondMoment::none);
  broken.make_backend = [](const Weights&, const ModelConfig&) -> Result<std::unique_ptr<Backend>> {
    return Error{ErrorCode::no_memory, "no room for a layer"};
  };
  Calibration run =
      Calibration::start(*model.checkpoint, model.weights, model.config, data, std::move(broken))
          .value();
  EXPECT_EQ(run.run(0).error().message, "no room for a layer");
}

TEST(Calibration, ThePartThatRunsMeanwhileIsPlannedForAndItsErrorsCome) {
  const Model model(Layout::dense);
  const CalibrationData data = random_data();
  CalibrationOptions wanted = options(SecondMoment::blocks);
  const auto make = wanted.make_backend;
  std::atomic<int> made = 0;
  const auto runner = std::make_shared<Aside>(
      model,
      [&](const Weights& weights, const ModelConfig& config) -> Result<std::unique_ptr<Backend>> {
        if (++made == 2) return Error{ErrorCode::no_memory, "no room for layer 1"};
        return make(weights, config);
      });
  wanted.runner = runner;
  Calibration run =
      Calibration::start(*model.checkpoint, model.weights, model.config, data, std::move(wanted))
          .value();
  EXPECT_EQ(run.memory().moment_bytes, 2 * runner->moment_bytes);
  EXPECT_EQ(runner->runs, 0);
  ASSERT_TRUE(run.run(0).ok());
  const InputStatistics* seen = run.find(model.weights.layers()[0].dense_mlp.gate.module);
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(seen->tokens, data.tokens());
  const auto done = run.run(1);
  EXPECT_EQ(runner->runs, 2);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, "no room for layer 1");
}

TEST(Calibration, BeginsBeforeItsFirstPartIsAskedFor) {
  const Model model(Layout::dense);
  const CalibrationData data = random_data();
  CalibrationOptions wanted = options(SecondMoment::blocks);
  const auto make = wanted.make_backend;
  std::promise<void> begun;
  std::atomic<int> made = 0;
  const auto runner =
      std::make_shared<Aside>(model, [&](const Weights& weights, const ModelConfig& config) {
        if (++made == 1) begun.set_value();
        return make(weights, config);
      });
  wanted.runner = runner;
  Calibration run =
      Calibration::start(*model.checkpoint, model.weights, model.config, data, std::move(wanted))
          .value();
  run.begin();
  EXPECT_EQ(begun.get_future().wait_for(std::chrono::seconds(300)), std::future_status::ready);
  ASSERT_TRUE(run.run(0).ok());
  const InputStatistics* seen = run.find(model.weights.layers()[0].dense_mlp.gate.module);
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(seen->tokens, data.tokens());
  ASSERT_TRUE(run.run(1).ok());
  EXPECT_EQ(runner->runs, 2);
}

TEST(Calibration, InputScalesArePowersOfTwoWithHeadroom) {
  for (const float amax : {1e-6F, 0.3F, 1.0F, 336.0F, 5000.0F}) {
    for (const auto& [scale, least] :
         {std::pair(nvfp4_input_scale(amax), kNvfp4Headroom * amax / 2688.0F),
          std::pair(fp8_input_scale(amax), kFp8Headroom * amax / 448.0F)}) {
      int exponent = 0;
      EXPECT_EQ(std::frexp(scale, &exponent), 0.5F);
      EXPECT_GE(scale, least * 0.999999F);
      EXPECT_LT(scale, 2.0F * least);
    }
  }
  for (const float none :
       {0.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    EXPECT_EQ(nvfp4_input_scale(none), 1.0F);
}

}  // namespace
}  // namespace nibble
