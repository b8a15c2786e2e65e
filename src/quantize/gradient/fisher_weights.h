// FisherWeights: how much each token counts in the second moment of a linear's input. Of the linear
// l and token t that is |d log p / d out_lt|^2, with log p the sum over the tokens of a sample of
// log p(y), every y drawn from the model itself: the second moment of out's gradient, and so, by
// the chain rule, what an error of a weight costs in KL divergence, to second order, up to factors
// that tokens do not share. One backward pass over the samples, layer by layer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/devices/gradient_device.h"
#include "model/layer_runner.h"
#include "model/taps.h"
#include "model/weights/weights.h"
#include "quantize/gradient/fisher_options.h"
#include "quantize/gradient/rows.h"

namespace nibble {

/// By linear. Of an expert's linears: the tokens that it got.
using FisherWeights = std::map<std::string, TokenWeights, std::less<>>;

/// Where the time of a sweep on a device went, in seconds.
struct FisherSeconds {
  double samples = 0;  // taking their embeddings
  double memory = 0;   // taking that of the device, and giving it back
  double weights = 0;  // waiting for them
  double forward = 0;
  double head = 0;
  double backward = 0;
  double squares = 0;  // gathering on the host, within the last two
};

struct FisherRequest {
  const Weights& weights;
  const ModelConfig& config;
  const LayerSamples& samples;  // lengths, and without a device the embeddings
  std::function<bool(const std::string& module)> wants = {};
  FisherOptions options = {};
  /// Is shown every linear of every pass and draw too, one layer after another, the last one first.
  gradient::OutputGradientSeen also_seen = {};
  /// Does the sweep; nullptr: the CPU does. It shows no linears (also_seen).
  GradientDevice* device = nullptr;
  FisherSeconds* seconds = nullptr;  // a device's parts are added there
  LayerWatch watch = {};  // told of rows through a layer, forward or backward, or through the head
};

/// Errors: those of reading weights and of the watch; unsupported where weights are quantized.
Result<FisherWeights> gather_fisher_weights(const FisherRequest& request);

/// Rows that the watch is told of, over all.
int64_t fisher_rows(int64_t tokens, const ModelConfig& config);
/// Residual streams of the samples that are taken together: of `longest` tokens at least, and of no
/// more than `tokens`.
int64_t fisher_state_bytes(int64_t tokens, int64_t longest, const ModelConfig& config,
                           const FisherOptions& options);

}  // namespace nibble
