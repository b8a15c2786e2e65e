// Passes of few rows, so that a backend's workspace stays small.
#include "quantize/calibrate/host_layer_runner.h"

#include <cmath>

#include "model/forward.h"
#include "model/sample_passes.h"
#include "tensor/float_formats.h"

namespace nibble {
namespace {

constexpr PassLimits kLimits = {.rows = 512, .sequences = 512};

class HostLayerRunner final : public LayerRunner {
 public:
  HostLayerRunner(const Weights& weights, const ModelConfig& config, BackendFactory make_backend)
      : weights_(weights), config_(config), make_backend_(std::move(make_backend)) {}

  std::string_view name() const override { return "cpu"; }
  std::string description() const override { return "cpu"; }
  Result<void> start(LayerSamples samples) override {
    passes_ = sample_passes(samples.lengths, kLimits);
    hidden_ = std::move(samples.hidden);
    return {};
  }
  Result<void> run_layer(int layer, HiddenStates hidden, Taps& taps,
                         const LayerWatch& watch) override;
  Result<void> run_head(InputStatistics& head, const LayerWatch& watch) override;
  bool weighs_tokens() const override { return true; }

 private:
  Result<void> open_layer(int layer);
  void run_pass(const SamplePass& pass, HiddenStates hidden, Taps& taps);
  std::span<uint16_t> hidden_of(const SamplePass& pass) {
    const auto width = static_cast<size_t>(config_.hidden);
    return std::span(hidden_).subspan(static_cast<size_t>(pass.first_row) * width,
                                      static_cast<size_t>(pass.batch.rows()) * width);
  }

  const Weights& weights_;
  const ModelConfig& config_;
  BackendFactory make_backend_;
  std::vector<SamplePass> passes_;
  std::vector<uint16_t> hidden_;  // BF16 [tokens, D]
  std::unique_ptr<Backend> backend_;
  int layer_ = -1;  // that the backend holds
  ModelConfig one_;
  PoolSizes pools_;
};

Result<void> HostLayerRunner::open_layer(int layer) {
  if (layer_ == layer) return {};
  backend_.reset();
  layer_ = -1;
  one_ = config_;
  one_.layers = {config_.layers[static_cast<size_t>(layer)]};
  backend_ = TRY(make_backend_(weights_.only(layer), one_));
  if (!backend_->calibrates())
    return make_error(ErrorCode::unsupported,
                      {.what = concat("calibration on the backend ", backend_->name()),
                       .expected = "one that shows the inputs of its linears",
                       .advice = "calibrate on the CPU"});
  pools_ = pools_for(passes_, kLimits);
  TRY(backend_->reserve(pools_));
  layer_ = layer;
  return {};
}

void HostLayerRunner::run_pass(const SamplePass& pass, HiddenStates hidden, Taps& taps) {
  const auto width = static_cast<size_t>(config_.hidden);
  const std::span<uint16_t> states = hidden_of(pass);
  std::vector<float> rows(states.size());
  std::ranges::transform(states, rows.begin(), bf16_to_float);
  Batch batch = pass.batch;
  batch.taps = &taps;
  taps.begin_pass(pass.first_row);
  for (int32_t r = 0; r < batch.rows(); ++r)
    batch.embeddings.push_back({.row = r, .embedding = &rows[static_cast<size_t>(r) * width]});
  backend_->zero_states(pass.fresh_slots);
  validate_batch(batch, one_, pools_);
  const Residual h = run_layers(*backend_, one_, batch);
  if (hidden == HiddenStates::stay) return;
  backend_->read_residual(h, rows);
  std::ranges::transform(rows, states.begin(), float_to_bf16);
}

Result<void> HostLayerRunner::run_layer(int layer, HiddenStates hidden, Taps& taps,
                                        const LayerWatch& watch) {
  TRY(open_layer(layer));
  for (const SamplePass& pass : passes_) {
    if (watch.check) TRY(watch.check());
    run_pass(pass, hidden, taps);
    if (watch.rows_done) watch.rows_done(pass.batch.rows());
  }
  return {};
}

/// The final norm of the hidden states (model.md 2.1), in double.
Result<void> HostLayerRunner::run_head(InputStatistics& head, const LayerWatch& watch) {
  backend_.reset();
  layer_ = -1;
  const auto width = static_cast<size_t>(config_.hidden);
  std::vector<float> weight = TRY(weights_.load(weights_.final_norm()));
  if (config_.norm == NormKind::zero_centred)
    for (float& w : weight) w += 1.0F;
  ThreadPool threads(0);
  std::vector<float> rows;
  for (const SamplePass& pass : passes_) {
    if (watch.check) TRY(watch.check());
    const std::span<const uint16_t> states = hidden_of(pass);
    rows.resize(states.size());
    for (size_t at = 0; at < states.size(); at += width) {
      double square = 0;
      for (size_t i = 0; i < width; ++i) {
        const double x = bf16_to_float(states[at + i]);
        square += x * x;
      }
      const double scale = 1.0 / std::sqrt(square / static_cast<double>(width) +
                                           static_cast<double>(config_.rms_eps));
      for (size_t i = 0; i < width; ++i)
        rows[at + i] = static_cast<float>(bf16_to_float(states[at + i]) * scale *
                                          static_cast<double>(weight[i]));
    }
    head.add({.x = rows.data(),
              .count = pass.batch.rows(),
              .stride = config_.hidden,
              .first_token = pass.first_row},
             threads);
    if (watch.rows_done) watch.rows_done(pass.batch.rows());
  }
  return {};
}

}  // namespace

std::unique_ptr<LayerRunner> make_host_layer_runner(const Weights& weights,
                                                    const ModelConfig& config,
                                                    BackendFactory make_backend) {
  return std::make_unique<HostLayerRunner>(weights, config, std::move(make_backend));
}

}  // namespace nibble
