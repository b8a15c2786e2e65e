// The end of the model: final norm, logits, and the gradient of log p(y) of a token y for each row.
#pragma once

#include "quantize/gradient/dense_linear.h"
#include "quantize/gradient/norm_gradient.h"

namespace nibble::gradient {

class HeadGradient {
 public:
  /// The token of a row, given the model's probabilities [V] of the token after it.
  using Choose = std::function<int32_t(int64_t row, std::span<const float> probabilities)>;

  static Result<HeadGradient> load(const Weights& weights, const ModelConfig& config);
  /// The gradient of sum_t log p(y_t) in the residual stream h [T, hidden] after the last layer,
  /// y_t the token that `choose` names. Logits of a few rows are in memory at a time.
  Rows back(const Rows& h, const Choose& choose, const Pass& pass) const;

 private:
  Norm norm_;
  DenseLinear head_;
};

}  // namespace nibble::gradient
