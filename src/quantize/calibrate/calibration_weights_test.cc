// Calibration with weights of tokens: each linear has sums of its own, whatever the cut into parts
// and groups; memory is planned; who cannot weigh is refused.
#include <gtest/gtest.h>

#include "quantize/testing/calibration_runs.h"
#include "quantize/testing/cpu_gradient_device.h"
#include "tensor/float_formats.h"

namespace nibble {
namespace {

using namespace test;

CalibrationOptions with_fisher(int64_t moment_bytes_max, const FisherOptions& fisher) {
  CalibrationOptions wanted = options(SecondMoment::full, moment_bytes_max);
  wanted.fisher = fisher;
  return wanted;
}

class WeightedCalibration : public testing::TestWithParam<Layout> {};

TEST_P(WeightedCalibration, WeightedSumsAreThoseOfTheSweepsWeights) {
  const Model model(GetParam());
  const CalibrationData data = random_data();
  const auto names = linear_names(model);
  const FisherOptions fisher{.plain_share = 0.5, .threads = 2};
  const Gathered found = gather(model, data, with_fisher(int64_t{1} << 30, fisher), names);
  LayerSamples samples;
  const LinearWeight table = model.weights.load(model.weights.embedding()).value();
  std::vector<float> row(static_cast<size_t>(model.config.hidden));
  for (const CalibrationSample& sample : data.samples) {
    samples.lengths.push_back(static_cast<int64_t>(sample.ids.size()));
    for (const int32_t id : sample.ids) {
      dequantize_rows(table, id, id + 1, row.data());
      for (const float x : row) samples.hidden.push_back(float_to_bf16(x));
    }
  }
  const FisherWeights weights =
      gather_fisher_weights({.weights = model.weights,
                             .config = model.config,
                             .samples = samples,
                             .wants = [](const std::string&) { return true; },
                             .options = fisher})
          .value();
  const Gathered plain = gather(model, data, options(SecondMoment::full), names);
  for (const auto& [module, seen] : found.inputs) {
    ASSERT_TRUE(weights.contains(module)) << module;
    EXPECT_EQ(seen.tokens, plain.inputs.at(module).tokens) << module;
    // The trace: weights leave it as it is, and add the plain share.
    double trace = 0, unweighted = 0;
    for (int64_t i = 0; i < seen.cols; ++i) {
      trace += seen.square(i);
      unweighted += plain.inputs.at(module).square(i);
    }
    EXPECT_NEAR(trace / unweighted, 1.5, module.find(".experts.") == std::string::npos ? 0.02 : 0.2)
        << module;
  }
  const MlpSources& mlp = GetParam() == Layout::dense ? model.weights.layers()[0].dense_mlp
                                                      : model.weights.layers()[0].moe.shared;
  EXPECT_NE(found.inputs.at(mlp.gate.module).moment, found.inputs.at(mlp.up.module).moment);
}

TEST_P(WeightedCalibration, PartsDoNotChangeWeightedSums) {
  const Model model(GetParam());
  const CalibrationData data = random_data();
  const auto names = linear_names(model);
  const Gathered whole = gather(model, data, with_fisher(int64_t{1} << 30, {}), names);
  const Gathered parts = gather(model, data, with_fisher(70'000, {.states_bytes_max = 1}), names);
  EXPECT_GT(parts.parts, whole.parts);
  for (const std::string& name : names) {
    EXPECT_EQ(whole.inputs.at(name).moment, parts.inputs.at(name).moment) << name;
    EXPECT_EQ(whole.amax.at(name), parts.amax.at(name)) << name;
  }
  for (size_t i = 0; i < whole.experts.size(); ++i)
    EXPECT_EQ(whole.experts[i].tokens, parts.experts[i].tokens) << i;
  EXPECT_EQ(whole.experts.size(), parts.experts.size());
}

INSTANTIATE_TEST_SUITE_P(Layouts, WeightedCalibration,
                         testing::Values(Layout::fused_experts, Layout::separate_experts,
                                         Layout::dense));

/// The layer runner of the CPU as one that makes the sweep itself, in passes of one sample.
class SweepingRunner final : public LayerRunner {
 public:
  SweepingRunner(const Model& model, BackendFactory make)
      : model_(model),
        runner_(make_host_layer_runner(model.weights, model.config, std::move(make))) {}
  std::string_view name() const override { return "sweeping"; }
  std::string description() const override { return "sweeping"; }
  Result<void> start(LayerSamples samples) override {
    weight_bytes = samples.weight_bytes;
    hidden_ = samples.hidden;
    return runner_->start(std::move(samples));
  }
  Result<void> run_layer(int layer, HiddenStates hidden, Taps& taps,
                         const LayerWatch& watch) override {
    return runner_->run_layer(layer, hidden, taps, watch);
  }
  Result<void> run_head(InputStatistics& head, const LayerWatch& watch) override {
    return runner_->run_head(head, watch);
  }
  bool weighs_tokens() const override { return true; }
  bool sweeps() const override { return true; }
  Result<std::unique_ptr<GradientDevice>> gradient_device(const GradientNeeds& needs) override {
    asked = needs;
    auto device =
        std::make_unique<CpuGradientDevice>(model_.weights, model_.config, hidden_, needs.longest,
                                            PassLimits{.rows = needs.longest, .sequences = 1});
    passes = device->passes;
    return std::unique_ptr<GradientDevice>(std::move(device));
  }

  int64_t weight_bytes = 0;
  GradientNeeds asked;
  std::shared_ptr<int> passes;

 private:
  const Model& model_;
  std::vector<uint16_t> hidden_;
  std::unique_ptr<LayerRunner> runner_;
};

TEST(WeightedCalibrationOf, ARunnerMayMakeTheSweep) {
  const Model model(Layout::fused_experts);
  const CalibrationData data = random_data();
  const auto names = linear_names(model);
  const Gathered expected = gather(model, data, with_fisher(int64_t{1} << 30, {}), names);
  CalibrationOptions wanted = with_fisher(int64_t{1} << 30, {});
  const auto runner = std::make_shared<SweepingRunner>(model, wanted.make_backend);
  wanted.runner = runner;
  const Gathered found = gather(model, data, std::move(wanted), names);
  for (const std::string& name : names)
    EXPECT_EQ(found.inputs.at(name).moment, expected.inputs.at(name).moment) << name;
  EXPECT_EQ(runner->asked.rows, data.tokens());
  EXPECT_EQ(runner->asked.longest, data.longest());
  EXPECT_GT(runner->weight_bytes, 0);
  ASSERT_NE(runner->passes, nullptr);
  EXPECT_EQ(*runner->passes, std::ssize(data.samples) * model.config.layer_count());
}

TEST(WeightedCalibrationOf, ARunnerThatDoesNotWeighTokensIsRefused) {
  const Model model(Layout::dense);
  const CalibrationData data = random_data();
  CalibrationOptions wanted = with_fisher(int64_t{1} << 30, {});
  wanted.runner = std::make_shared<Aside>(model, wanted.make_backend);
  const auto run =
      Calibration::start(*model.checkpoint, model.weights, model.config, data, std::move(wanted));
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code, ErrorCode::unsupported);
  EXPECT_NE(run.error().message.find("--backend cpu"), std::string::npos) << run.error().message;
}

TEST(WeightedCalibrationOf, MemoryForTheSweepIsPlannedAndLimited) {
  const Model model(Layout::fused_experts);
  const CalibrationData data = random_data();
  const auto start = [&](int64_t limit) {
    CalibrationOptions wanted = with_fisher(int64_t{1} << 30, {});
    wanted.memory_bytes_max = limit;
    return Calibration::start(*model.checkpoint, model.weights, model.config, data,
                              std::move(wanted));
  };
  const CalibrationMemory free = start(0).value().memory();
  EXPECT_GE(free.sweep_bytes, data.tokens() * test::kHidden * 3 * 4);  // streams of two layers
  EXPECT_GT(free.weight_bytes, 0);
  const CalibrationMemory tight = start(free.total() * 9 / 10).value().memory();
  EXPECT_LE(tight.total(), free.total() * 9 / 10);
  const auto refused = start(free.hidden_bytes);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::no_memory);
}

}  // namespace
}  // namespace nibble
