// Full attention of whole samples, forward and backward: grouped queries, norms of queries and
// keys, rotary positions, an optional output gate.
#pragma once

#include "model/config/rope.h"
#include "quantize/gradient/dense_linear.h"
#include "quantize/gradient/norm_gradient.h"

namespace nibble::gradient {

class AttentionGradient {
 public:
  /// The numbers that run() keeps for back().
  struct Trace {
    Rows projected;  // [T, q_heads * head_dim], with an output gate per head [q | gate]
    Rows q;          // [T, q_heads * head_dim], normed and rotated
    Rows k_raw;      // [T, kv_heads * head_dim]
    Rows k;          // normed and rotated
    Rows v;
    Rows mixed;  // [T, q_heads * head_dim], before the gate
    Rows gated;  // the input of o_proj
  };

  static Result<AttentionGradient> load(const Weights& weights, const AttentionSources& sources,
                                        const ModelConfig& config);
  /// x [T, hidden], normed -> [T, hidden].
  Rows run(const Rows& x, const Pass& pass, Trace& trace) const;
  /// The gradient of x, given that of run()'s result.
  Rows back(const Rows& x, const Trace& trace, const Rows& dy, const Pass& pass) const;

 private:
  struct Gradients {  // of the members of a trace with the same names
    Rows projected, q, k, v, mixed;
  };
  struct HeadRows;
  int64_t stride() const { return (config_.output_gate ? 2 : 1) * int64_t{config_.head_dim}; }
  void turn_all(const Pass& pass, Rows& q, Rows& k, float direction) const;
  void norm_heads(const Trace& trace, Rows& q, Rows& k, const Pass& pass) const;
  void each_head(const Pass& pass, const std::function<void(const HeadRows&)>& work) const;
  void attend(const HeadRows& head, Trace& trace) const;
  void attend_back(const HeadRows& head, const Trace& trace, Gradients& d) const;
  void gate(Trace& trace) const;
  void gate_back(const Trace& trace, const Rows& dgated, Gradients& d) const;
  void norm_heads_back(const Trace& trace, Gradients& d, Rows& dk_raw, const Pass& pass) const;

  AttentionConfig config_;
  RopeTable rope_;
  DenseLinear q_, k_, v_, o_;
  Norm q_norm_, k_norm_;
};

}  // namespace nibble::gradient
