// One layer of the model in F32, forward and backward, over whole samples.
#pragma once

#include "quantize/gradient/attention_gradient.h"
#include "quantize/gradient/delta_net_gradient.h"
#include "quantize/gradient/feed_forward_gradient.h"

namespace nibble::gradient {

class LayerGradient {
 public:
  /// The numbers that run() keeps for back(); they take a few times as much as the pass's inputs.
  struct Trace {
    Rows input;   // the residual stream before the layer [T, hidden]
    Rows middle;  // between mixer and feed-forward
    Rows mixer_x, feed_forward_x;
    AttentionGradient::Trace attention;
    DeltaNetGradient::Trace delta_net;
    MlpGradient::Trace dense_mlp;
    MoeGradient::Trace moe;
  };

  /// The bytes that its weights take in F32 are twice those of a layer in BF16. Errors: those of
  /// reading.
  static Result<LayerGradient> load(const Weights& weights, const ModelConfig& config, int layer);
  /// The residual stream [T, hidden] before the layer -> after it.
  Rows run(Rows h, const Pass& pass, Trace& trace) const;
  /// The gradient of the stream before the layer, given that after it.
  Rows back(const Trace& trace, const Rows& dh, const Pass& pass) const;

 private:
  bool attends_ = false, has_experts_ = false;
  Norm input_norm_, post_norm_;
  AttentionGradient attention_;
  DeltaNetGradient delta_net_;
  MlpGradient dense_mlp_;
  MoeGradient moe_;
};

}  // namespace nibble::gradient
