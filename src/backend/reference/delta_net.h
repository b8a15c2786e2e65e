// Gated DeltaNet, token by token.
#pragma once

#include <vector>

#include "backend/reference/caches.h"
#include "backend/reference/linear.h"
#include "backend/reference/norm.h"
#include "backend/reference/prompt_rounding.h"
#include "model/batch.h"

namespace nibble::reference {

/// Short causal convolution over the qkv channels, then per value head the gated delta rule on a
/// state S [k_dim, v_dim]:
///   S = alpha S;  u = beta (v - S^T k);  S = S + k u^T;  o = S^T q
/// with alpha = exp(-exp(A_log) softplus(a + dt_bias)), beta = sigmoid(b), q and k of unit length,
/// q scaled by k_dim^-0.5 (Gated Delta Networks, arXiv 2412.06464, in transformers' order).
class DeltaNet {
 public:
  static Result<DeltaNet> load(const Weights& weights, const DeltaNetSources& sources,
                               const ModelConfig& config, const LinearOptions& options,
                               PromptRounding rounding);

  /// x [T, hidden], normed -> [T, hidden]. Reads state_in, writes state_out and the snapshots;
  /// saves and replays inputs as the batch says. `layer` counts delta-net layers.
  std::vector<float> run(const Batch& batch, int layer, const std::vector<float>& x,
                         StateSlots& slots) const;

 private:
  struct Projected {  // [T, ..]
    std::vector<float> qkv, z, b, a;
    PromptRounding rounding = PromptRounding::none;  // of the sequence in work
  };
  void save(const Projected& in, const BatchSequence& sequence, SavedInputs& saved) const;
  /// Applies the first `rows` saved inputs to the state.
  void replay(StateSlots& slots, int layer, const BatchSequence& sequence, DeltaState& state) const;
  void token(const Projected& in, size_t row, DeltaState& state, float* out) const;
  /// Convolution and SiLU of one token [qkv_rows]; shifts the token into the conv state.
  std::vector<double> convolve(const float* qkv, DeltaState& state) const;
  void head(const std::vector<double>& qkv, const Projected& in, size_t row, size_t v_head,
            DeltaState& state, float* out) const;

  DeltaNetConfig config_;
  PromptRounding rounding_ = PromptRounding::none;
  Linear qkv_, z_, b_, a_, out_;
  std::vector<float> conv_;     // [qkv_rows, kernel]
  std::vector<float> a_log_;    // [v_heads]
  std::vector<float> dt_bias_;  // [v_heads]
  RmsNorm norm_;                // plain, over v_dim
};

}  // namespace nibble::reference
