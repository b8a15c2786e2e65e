// Taps of the CPU backend against those of the reference, and the model run layer by layer, each
// layer in a backend of its own, against the model run at once.
#include "model/taps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "model/forward.h"
#include "testing/golden_checks.h"
#include "testing/tiny_checkpoint.h"

namespace nibble {
namespace {

void add_mlp(Taps& taps, const MlpSources& mlp) {
  if (!mlp.gate.present()) return;
  taps.want(mlp.gate.module, mlp.gate.cols, SecondMoment::full);
  taps.want(mlp.down.module, mlp.down.cols, SecondMoment::diagonal);
}

/// The first linear of each group that shares an input, for all layers.
Taps wanted(const Weights& weights) {
  Taps taps;
  for (const LayerSources& layer : weights.layers()) {
    for (const LinearSource* linear :
         {&layer.attention.q, &layer.attention.o, &layer.delta_net.qkv, &layer.delta_net.out})
      if (linear->present())
        taps.want(linear->module, linear->cols,
                  linear->cols % kMomentBlock == 0 ? SecondMoment::blocks : SecondMoment::full);
    add_mlp(taps, layer.dense_mlp);
    add_mlp(taps, layer.moe.shared);
    for (const MlpSources& expert : layer.moe.experts) add_mlp(taps, expert);
  }
  return taps;
}

Batch prompt(const GoldenSequence& sequence, Taps* taps) {
  const auto rows = static_cast<int32_t>(sequence.ids.size());
  Batch batch{.tokens = sequence.ids};
  for (size_t axis = 0; axis < 3; ++axis)
    for (const auto& position : sequence.positions) batch.positions.push_back(position[axis]);
  const int32_t pages = (rows + kPageTokens - 1) / kPageTokens;
  for (int32_t page = 0; page < pages; ++page) batch.pages.push_back(page);
  batch.sequences = {{.row_count = rows, .page_count = pages}};
  batch.taps = taps;
  return batch;
}

std::vector<float> residual_of(Backend& backend, const ModelConfig& config, const Batch& batch) {
  backend.zero_state(0);
  const Residual h = run_layers(backend, config, batch);
  std::vector<float> out(static_cast<size_t>(h.rows) * static_cast<size_t>(config.hidden));
  backend.read_residual(h, out);
  return out;
}

std::unique_ptr<Backend> ready(Result<std::unique_ptr<Backend>> backend) {
  const auto reserved = backend.value()->reserve({.pages = 4, .state_slots = 1, .rows_max = 256});
  EXPECT_TRUE(reserved.ok());
  return std::move(backend).value();
}

class CpuTaps : public testing::TestWithParam<std::string> {
 protected:
  Golden golden_ = load_golden(GetParam());
};

TEST_P(CpuTaps, AreThoseOfTheReference) {
  const auto cpu = ready(make_cpu_backend(golden_.weights, golden_.config, {.threads = 2}));
  const auto reference = ready(make_reference_backend(golden_.weights, golden_.config, {}));
  ASSERT_TRUE(cpu->calibrates() && reference->calibrates());
  Taps found = wanted(golden_.weights), truth = wanted(golden_.weights);
  residual_of(*cpu, golden_.config, prompt(golden_.sequences[0], &found));
  residual_of(*reference, golden_.config, prompt(golden_.sequences[0], &truth));
  int64_t tokens = 0;
  for (const auto& [module, expected] : truth.all()) {
    const InputStatistics& seen = *found.find(module);
    ASSERT_EQ(seen.tokens, expected.tokens) << module;
    tokens += seen.tokens;
    ASSERT_NEAR(seen.amax, expected.amax, 1e-4F * expected.amax) << module;
    double largest = 0;
    for (const double x : expected.moment) largest = std::max(largest, std::fabs(x));
    for (size_t i = 0; i < seen.moment.size(); ++i)
      ASSERT_NEAR(seen.moment[i], expected.moment[i], 2e-4 * largest) << module;
  }
  EXPECT_GT(tokens, 0);
  // A pass without taps leaves them as they are.
  residual_of(*cpu, golden_.config, prompt(golden_.sequences[0], nullptr));
  for (const auto& [module, expected] : truth.all())
    ASSERT_EQ(found.find(module)->tokens, expected.tokens) << module;
}

/// Tokens that differ in weight by far: a row taken for another's would show.
TEST_P(CpuTaps, WeighEveryTokenByItsOwn) {
  constexpr int64_t kFirst = 1000;  // token of the pass's first row
  TokenWeights weights;
  for (int32_t t = 0; t < kFirst + 200; ++t)
    weights.weights.push_back(t % 3 == 0 ? 100.0F : 0.01F * static_cast<float>(t % 7));
  const auto cpu = ready(make_cpu_backend(golden_.weights, golden_.config, {.threads = 2}));
  const auto reference = ready(make_reference_backend(golden_.weights, golden_.config, {}));
  const Taps like = wanted(golden_.weights);
  Taps found, truth;
  for (Taps* taps : {&found, &truth}) {
    taps->begin_pass(kFirst);
    for (const auto& [module, seen] : like.all())
      taps->want(module, seen.cols, seen.kind, &weights);
  }
  residual_of(*cpu, golden_.config, prompt(golden_.sequences[0], &found));
  residual_of(*reference, golden_.config, prompt(golden_.sequences[0], &truth));
  for (const auto& [module, expected] : truth.all()) {
    const InputStatistics& seen = *found.find(module);
    double largest = 0;
    for (const double x : expected.moment) largest = std::max(largest, std::fabs(x));
    for (size_t i = 0; i < seen.moment.size(); ++i)
      ASSERT_NEAR(seen.moment[i], expected.moment[i], 2e-4 * largest) << module;
  }
}

TEST_P(CpuTaps, LayerByLayerIsTheSameModel) {
  const auto whole = ready(make_cpu_backend(golden_.weights, golden_.config, {.threads = 2}));
  Batch batch = prompt(golden_.sequences[0], nullptr);
  const auto expected = residual_of(*whole, golden_.config, batch);
  whole->zero_state(0);
  const auto hidden = static_cast<size_t>(golden_.config.hidden);
  std::vector<float> h(expected.size()), next(expected.size());
  whole->read_residual(whole->embed(batch), h);
  for (size_t row = 0; row < batch.tokens.size(); ++row) batch.embeddings.push_back({});
  for (int layer = 0; layer < golden_.config.layer_count(); ++layer) {
    ModelConfig config = golden_.config;
    config.layers = {golden_.config.layers[static_cast<size_t>(layer)]};
    for (size_t row = 0; row < batch.tokens.size(); ++row)
      batch.embeddings[row] = {.row = static_cast<int32_t>(row), .embedding = &h[row * hidden]};
    for (const auto& make : {make_reference_backend, make_cpu_backend}) {
      const auto one = ready(make(golden_.weights.only(layer), config, {.threads = 2}));
      next = residual_of(*one, config, batch);
    }
    h = next;
  }
  EXPECT_EQ(h, expected);
}

/// Experts pick rows of inputs in few bits; with taps, rows are copied together for them.
TEST(CpuRouting, PickedRowsGiveTheModelOfCopiedOnes) {
  for (const char* name : {"model-quantized/nvfp4-w4a4", "model-quantized/modelopt-nvfp4"}) {
    const Golden golden = load_golden(name);
    ASSERT_TRUE(golden.config.moe.has_value());
    const auto cpu = ready(make_cpu_backend(golden.weights, golden.config,
                                            {.activations = Activations::int8, .threads = 2}));
    Taps taps = wanted(golden.weights);
    const auto copied = residual_of(*cpu, golden.config, prompt(golden.sequences[0], &taps));
    EXPECT_EQ(residual_of(*cpu, golden.config, prompt(golden.sequences[0], nullptr)), copied);
  }
}

/// A router of zeros gives every expert the same logit: the lowest index is chosen, as in all
/// backends.
TEST(CpuRouting, EqualLogitsGoToTheFirstExpert) {
  TinyCheckpoint tiny = TinyCheckpoint::moe();
  for (const char* layer : {"0", "1"})
    std::ranges::fill(tiny.at(concat(TinyCheckpoint::kLayers, layer, ".mlp.gate.weight")).bytes,
                      '\0');
  const TemporaryFolder folder;
  tiny.write(folder / "tiny");
  const Checkpoint checkpoint = Checkpoint::open(folder / "tiny").value();
  const ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  const Weights weights = Weights::bind(checkpoint, config).value();
  const GoldenSequence sequence{
      .ids = {3, 1, 4, 15, 9},
      .positions = {{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {4, 4, 4}}};
  for (const auto& make : {make_reference_backend, make_cpu_backend}) {
    const auto backend = ready(make(weights, config, {.threads = 2}));
    Taps taps = wanted(weights);
    residual_of(*backend, config, prompt(sequence, &taps));
    for (const LayerSources& layer : weights.layers()) {
      EXPECT_EQ(taps.find(layer.moe.experts[0].gate.module)->tokens, 5) << backend->name();
      EXPECT_EQ(taps.find(layer.moe.experts[1].gate.module)->tokens, 0) << backend->name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CpuTaps, testing::ValuesIn(golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

}  // namespace
}  // namespace nibble
