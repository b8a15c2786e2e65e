// Activations that a card cannot round as a checkpoint declares them. No card is asked.
#include "backend/cuda/activations/activation_rule.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {
namespace {

Error unsupported(const LinearSource& source, std::string_view expected) {
  return make_error(ErrorCode::unsupported, {.what = source.module,
                                             .expected = expected,
                                             .found = "another",
                                             .advice = "run it with --backend cpu"});
}

/// One input is rounded once for both.
Result<void> check_pair(const Weights& weights, const MlpSources& mlp) {
  if (!mlp.gate.present()) return {};
  constexpr std::string_view kExpected = "the declared activations of gate_proj";
  if (mlp.up.scheme.activations != mlp.gate.scheme.activations)
    return unsupported(mlp.up, kExpected);
  if (!has_input_scale(mlp.gate.scheme.activations)) return {};
  const LinearWeight gate = TRY(weights.load_factors(mlp.gate));
  const LinearWeight up = TRY(weights.load_factors(mlp.up));
  if (up.input_scale.value != gate.input_scale.value) return unsupported(mlp.up, kExpected);
  return {};
}

Result<void> check_experts(const Weights& weights, const std::vector<MlpSources>& experts) {
  for (const MlpSources& expert : experts) {
    TRY(check_pair(weights, expert));
    for (const auto role : {&MlpSources::gate, &MlpSources::down})
      if ((expert.*role).scheme.activations != (experts.front().*role).scheme.activations)
        return unsupported(expert.*role, "the declared activations of the layer's first expert");
  }
  return {};
}

}  // namespace

Result<void> check_declared(const Weights& weights) {
  if (weights.embedding().scheme.activations != ActivationFormat::high)
    return unsupported(weights.embedding(), "an embedding table without declared activations");
  for (const LayerSources& layer : weights.layers()) {
    TRY(check_pair(weights, layer.dense_mlp));
    TRY(check_pair(weights, layer.moe.shared));
    TRY(check_experts(weights, layer.moe.experts));
  }
  return {};
}

}  // namespace nibble::cuda
