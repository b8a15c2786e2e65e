// FisherWeights: how much each token counts in the second moment of a linear's input. Of the linear
// l and token t that is |d log p / d out_lt|^2, with log p the sum over the tokens of a sample of
// log p(y), every y drawn from the model itself: the second moment of out's gradient, and so, by
// the chain rule, what an error of a weight costs in KL divergence, to second order, up to factors
// that tokens do not share. One backward pass over the samples, layer by layer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/layer_runner.h"
#include "model/taps.h"
#include "model/weights/weights.h"

namespace nibble {

struct FisherOptions {
  /// A token's weight is its square, scaled so that it leaves the trace of the moment as it is,
  /// plus this: a part of the moment without weights, which keeps what gradients are too small to
  /// see.
  double plain_share = 0.1;
  int label_draws = 1;  // tokens y that are drawn for each place, each a backward pass
  uint64_t seed = 0;    // of the draws
  /// Samples are taken together until their residual streams between all layers take this much.
  int64_t states_bytes_max = int64_t{2} << 30;
  int threads = 0;  // 0: one per usable core; the result is the same
};

/// "plain" (nothing), "fisher" or "fisher:SHARE" with the plain share, 0 to 1000. Errors:
/// invalid_argument.
Result<std::optional<FisherOptions>> parse_second_moments(std::string_view text);

/// By linear. Of an expert's linears: the tokens that it got.
using FisherWeights = std::map<std::string, TokenWeights, std::less<>>;

struct FisherRequest {
  const Weights& weights;
  const ModelConfig& config;
  const LayerSamples& samples;  // lengths, and the embeddings
  std::function<bool(const std::string& module)> wants = {};
  FisherOptions options = {};
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
