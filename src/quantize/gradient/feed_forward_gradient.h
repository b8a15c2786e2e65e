// SwiGLU feed-forward, forward and backward: one dense, or routed experts and a gated shared one.
#pragma once

#include "quantize/gradient/dense_linear.h"

namespace nibble::gradient {

/// down( silu(gate x) * (up x) ).
struct MlpGradient {
  struct Trace {
    Rows gate, up, active;  // [R, F]; active: the input of down
  };
  DenseLinear gate, up, down;

  static Result<MlpGradient> load(const Weights& weights, const MlpSources& sources);
  Rows run(const Rows& x, const Pass& pass, Trace& trace) const;
  /// The gradient of x, given that of run()'s result. `rows`: as OutputGradientSeen says.
  Rows back(const Rows& x, const Trace& trace, const Rows& dy, const Pass& pass,
            std::span<const int32_t> rows = {}) const;
};

class MoeGradient {
 public:
  /// The rows that one expert got.
  struct ExpertTrace {
    std::vector<int32_t> rows;   // of the pass, ascending
    std::vector<float> weights;  // what its output is multiplied with
    Rows x, y;
    MlpGradient::Trace inner;
  };
  struct Trace {
    Rows probabilities;  // [T, experts], the softmax over all
    std::vector<ExpertTrace> experts;
    MlpGradient::Trace shared;
    Rows shared_y, shared_gate;  // [T, hidden], [T, 1]
  };

  static Result<MoeGradient> load(const Weights& weights, const MoeSources& sources,
                                  const ModelConfig& config);
  /// x [T, hidden], normed -> [T, hidden].
  Rows run(const Rows& x, const Pass& pass, Trace& trace) const;
  /// The gradient of x, given that of run()'s result. The choice of experts is a constant.
  Rows back(const Rows& x, const Trace& trace, const Rows& dy, const Pass& pass) const;

 private:
  void route(const Rows& logits, Trace& trace) const;
  void choose(int64_t row, const float* logits, Trace& trace) const;
  void add_shared(const Rows& x, const Pass& pass, Trace& trace, Rows& y) const;
  void shared_back(const Rows& x, const Trace& trace, const Rows& dy, const Pass& pass,
                   Rows& dx) const;
  struct Gradients {
    Rows x, weights;  // [T, hidden], [T, experts]: of the weights that outputs are multiplied with
  };
  void expert_back(size_t expert, const Trace& trace, const Rows& dy, const Pass& pass,
                   Gradients& d) const;
  Rows logits_back(const Trace& trace, const Rows& dweights) const;

  MoeConfig config_;
  DenseLinear router_;
  std::vector<MlpGradient> experts_;
  MlpGradient shared_;
  DenseLinear shared_gate_;
};

}  // namespace nibble::gradient
