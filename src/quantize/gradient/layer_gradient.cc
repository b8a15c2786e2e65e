// h += mixer(norm(h)); h += feed_forward(norm(h)).
#include "quantize/gradient/layer_gradient.h"

namespace nibble::gradient {
namespace {

void add(const Rows& from, Rows& to) {
  for (size_t i = 0; i < to.values.size(); ++i) to.values[i] += from.values[i];
}

}  // namespace

Result<LayerGradient> LayerGradient::load(const Weights& weights, const ModelConfig& config,
                                          int layer) {
  const LayerSources& sources = weights.layers()[static_cast<size_t>(layer)];
  LayerGradient out;
  out.attends_ = config.layers[static_cast<size_t>(layer)] == LayerKind::attention;
  out.has_experts_ = config.moe.has_value();
  out.input_norm_ = TRY(Norm::load(weights, sources.input_norm, config.norm, config));
  out.post_norm_ = TRY(Norm::load(weights, sources.post_norm, config.norm, config));
  if (out.attends_)
    out.attention_ = TRY(AttentionGradient::load(weights, sources.attention, config));
  else
    out.delta_net_ = TRY(DeltaNetGradient::load(weights, sources.delta_net, config));
  if (out.has_experts_)
    out.moe_ = TRY(MoeGradient::load(weights, sources.moe, config));
  else
    out.dense_mlp_ = TRY(MlpGradient::load(weights, sources.dense_mlp));
  return out;
}

Rows LayerGradient::run(Rows h, const Pass& pass, Trace& trace) const {
  trace.input = std::move(h);
  trace.mixer_x = input_norm_.apply(trace.input, pass.threads);
  trace.middle = attends_ ? attention_.run(trace.mixer_x, pass, trace.attention)
                          : delta_net_.run(trace.mixer_x, pass, trace.delta_net);
  add(trace.input, trace.middle);
  trace.feed_forward_x = post_norm_.apply(trace.middle, pass.threads);
  Rows out = has_experts_ ? moe_.run(trace.feed_forward_x, pass, trace.moe)
                          : dense_mlp_.run(trace.feed_forward_x, pass, trace.dense_mlp);
  add(trace.middle, out);
  return out;
}

Rows LayerGradient::back(const Trace& trace, const Rows& dh, const Pass& pass) const {
  Rows dmiddle = dh;
  const Rows dx = has_experts_ ? moe_.back(trace.feed_forward_x, trace.moe, dh, pass)
                               : dense_mlp_.back(trace.feed_forward_x, trace.dense_mlp, dh, pass);
  post_norm_.add_back(trace.middle, dx, dmiddle, pass.threads);
  Rows dinput = dmiddle;
  const Rows dmixer = attends_ ? attention_.back(trace.mixer_x, trace.attention, dmiddle, pass)
                               : delta_net_.back(trace.mixer_x, trace.delta_net, dmiddle, pass);
  input_norm_.add_back(trace.input, dmixer, dinput, pass.threads);
  return dinput;
}

}  // namespace nibble::gradient
