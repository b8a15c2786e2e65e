// Gated DeltaNet over whole samples, forward and backward: convolution, delta rule per head, gated
// norm, output product.
#pragma once

#include "quantize/gradient/delta_rule.h"
#include "quantize/gradient/dense_linear.h"
#include "quantize/gradient/norm_gradient.h"

namespace nibble::gradient {

class DeltaNetGradient {
 public:
  /// The numbers that run() keeps for back().
  struct Trace {
    Rows qkv;                         // [T, qkv_rows], before the convolution
    Rows convolved;                   // before SiLU
    Rows active;                      // after it
    Rows z, b, a;                     // [T, v_heads * v_dim], [T, v_heads] twice
    Rows q, k;                        // [T, k_heads * k_dim], of unit length; q scaled
    Rows mixed;                       // [T, v_heads * v_dim], out of the delta rule
    Rows gated;                       // the input of out_proj
    std::vector<DeltaStates> states;  // [samples * v_heads]
  };

  static Result<DeltaNetGradient> load(const Weights& weights, const DeltaNetSources& sources,
                                       const ModelConfig& config);
  /// x [T, hidden], normed -> [T, hidden].
  Rows run(const Rows& x, const Pass& pass, Trace& trace) const;
  /// The gradient of x, given that of run()'s result.
  Rows back(const Rows& x, const Trace& trace, const Rows& dy, const Pass& pass) const;

 private:
  struct Gradients {  // of the members of a trace with the same names
    Rows active, z, b, a, q, k, mixed;
  };
  int64_t k_width() const { return int64_t{config_.k_heads} * config_.k_dim; }
  DeltaRule rule_of(const Trace& trace, const SampleRows& sample, int64_t head) const;
  void convolve(const Pass& pass, Trace& trace) const;
  void convolve_back(const Pass& pass, const Trace& trace, const Rows& dactive, Rows& dqkv) const;
  void normalise(const Pass& pass, Trace& trace) const;
  void normalise_back(const Pass& pass, const Trace& trace, Gradients& d) const;
  void recur(const Pass& pass, Trace& trace) const;
  void recur_back(const Pass& pass, const Trace& trace, Gradients& d) const;
  void head_back(const Trace& trace, const SampleRows& sample, const DeltaStates& states,
                 int64_t head, Gradients& d) const;
  void gate(const Pass& pass, Trace& trace) const;
  void gate_back(const Pass& pass, const Trace& trace, const Rows& dgated, Gradients& d) const;

  DeltaNetConfig config_;
  DenseLinear qkv_, z_, b_, a_, out_;
  std::vector<float> conv_;     // [kernel, qkv_rows], oldest input first
  std::vector<float> a_log_;    // [v_heads]
  std::vector<float> dt_bias_;  // [v_heads]
  Norm norm_;                   // plain, over v_dim
};

}  // namespace nibble::gradient
