// For tests: calibrations of the small checkpoint of test_model.h, and what they saw.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "quantize/calibrate/calibration.h"
#include "quantize/testing/test_model.h"

namespace nibble::test {

struct Model {
  Folder folder;
  std::unique_ptr<Checkpoint> checkpoint;
  ModelConfig config;
  Weights weights;

  explicit Model(Layout layout, const WeightFunction& change = {}) {
    write_model(folder / "m", layout, change);
    checkpoint = std::make_unique<Checkpoint>(Checkpoint::open(folder / "m").value());
    config = ModelConfig::parse(checkpoint->config()).value();
    weights = Weights::bind(*checkpoint, config).value();
  }
};

/// Samples of several lengths, one beyond the rows of a pass.
inline CalibrationData random_data() {
  CalibrationData data;
  std::mt19937_64 random(5);
  SourceReport source{.file = "random"};
  for (const size_t length : {7, 130, 64, 700, 1, 33}) {
    CalibrationSample sample;
    for (size_t i = 0; i < length; ++i)
      sample.ids.push_back(static_cast<int32_t>(random() % kVocab));
    source.tokens += static_cast<int64_t>(length);
    data.samples.push_back(std::move(sample));
  }
  data.sources = {source};
  return data;
}

inline CalibrationOptions options(SecondMoment moment,
                                  int64_t moment_bytes_max = int64_t{1} << 30) {
  return {.moment = moment,
          .wants_moment = [](const std::string&) { return true; },
          .make_backend =
              [](const Weights& weights, const ModelConfig& config) {
                return make_cpu_backend(weights, config, {.threads = 2});
              },
          .moment_bytes_max = moment_bytes_max};
}

struct Gathered {
  std::map<std::string, InputStatistics> inputs;
  std::map<std::string, float> amax;
  std::vector<ExpertTokens> experts;
  int parts = 0;
};

inline Gathered gather(const Model& model, const CalibrationData& data, CalibrationOptions wanted,
                       const std::vector<std::string>& modules) {
  Calibration run =
      Calibration::start(*model.checkpoint, model.weights, model.config, data, std::move(wanted))
          .value();
  Gathered out{.inputs = {}, .amax = {}, .experts = {}, .parts = run.parts()};
  for (int part = 0; part < run.parts(); ++part) {
    const auto done = run.run(part);
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
    for (const std::string& module : modules) {
      EXPECT_EQ(run.find(module) != nullptr, run.part_of(module) == part) << module;
      if (run.part_of(module) != part) continue;
      out.inputs[module] = *run.find(module);
      out.amax[module] = run.amax(module);
    }
  }
  out.experts = run.expert_tokens();
  return out;
}

inline std::vector<std::string> linear_names(const Model& model) {
  std::vector<std::string> names = {model.weights.head().module};
  const auto add = [&](const LinearSource& linear) {
    if (linear.present()) names.push_back(linear.module);
  };
  const auto add_mlp = [&](const MlpSources& mlp) {
    for (const LinearSource* linear : {&mlp.gate, &mlp.up, &mlp.down}) add(*linear);
  };
  for (const LayerSources& layer : model.weights.layers()) {
    for (const LinearSource* linear :
         {&layer.attention.q, &layer.attention.k, &layer.attention.v, &layer.attention.o,
          &layer.delta_net.qkv, &layer.delta_net.z, &layer.delta_net.b, &layer.delta_net.out})
      add(*linear);
    add_mlp(layer.dense_mlp);
    add_mlp(layer.moe.shared);
    for (const MlpSources& expert : layer.moe.experts) add_mlp(expert);
  }
  return names;
}

/// The layer runner of the CPU as one that leaves the cores free.
class Aside final : public LayerRunner {
 public:
  Aside(const Model& model, BackendFactory make)
      : runner_(make_host_layer_runner(model.weights, model.config, std::move(make))) {}
  std::string_view name() const override { return "aside"; }
  std::string description() const override { return "aside"; }
  Result<void> start(LayerSamples samples) override {
    moment_bytes = samples.moment_bytes;
    return runner_->start(std::move(samples));
  }
  Result<void> run_layer(int layer, HiddenStates hidden, Taps& taps,
                         const LayerWatch& watch) override {
    ++runs;
    return runner_->run_layer(layer, hidden, taps, watch);
  }
  Result<void> run_head(InputStatistics& head, const LayerWatch& watch) override {
    return runner_->run_head(head, watch);
  }
  bool leaves_cores_free() const override { return true; }

  std::atomic<int> runs = 0;
  int64_t moment_bytes = 0;

 private:
  std::unique_ptr<LayerRunner> runner_;
};

}  // namespace nibble::test
