// The loss that each linear would cause in NVFP4 and in FP8, alone: KL divergence to second order.
// With dy_t the error that a format makes at a linear's output for token t, and g_t the gradient
// there of sum log p(y) over labels y drawn from the model itself, it is the mean over tokens of
// 1/2 (g_t . dy_t)^2: the quadratic form of the Fisher information, without what joins different
// tokens. Weights are rounded without data for it; FP8 meets activations in FP8, one scale a token.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/result.h"
#include "quantize/gradient/fisher_weights.h"
#include "quantize/recipe/quant_plan.h"

namespace nibble {

/// Nats a token.
struct FormatLoss {
  double nvfp4 = 0;  // of a linear that cannot be NVFP4: zero
  double fp8 = 0;
};
using FormatLosses = std::map<std::string, FormatLoss, std::less<>>;

struct FormatLossRequest {
  const Weights& weights;
  const ModelConfig& config;
  const LayerSamples& samples;  // lengths, and the embeddings
  std::function<bool(const std::string& module)> wants = {};
  FisherOptions options = {};  // its draws, seed, threads and bytes of states
  LayerWatch watch = {};
};

/// One sweep, a layer in memory in F32 and both roundings of it beside. A linear that no token came
/// to has no entry. Errors: those of gather_fisher_weights; corrupt where weights or gradients are
/// no finite numbers.
Result<FormatLosses> gather_format_losses(const FormatLossRequest& request);

/// The most bytes that it holds beside its states, for a plan that quantizes the same linears: the
/// largest layer or the head in F32, its codes in both formats, and one linear decoded.
int64_t format_loss_bytes(const QuantPlan& plan);

}  // namespace nibble
