// Rows are gathered by expert, so that each expert is one product.
#include "quantize/gradient/feed_forward_gradient.h"

#include <algorithm>

#include "quantize/gradient/norm_gradient.h"
#include "quantize/gradient/vector_sums.h"

namespace nibble::gradient {
namespace {

Rows gather(const Rows& from, std::span<const int32_t> rows) {
  Rows out(static_cast<int64_t>(rows.size()), from.width);
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy_n(from.row(rows[i]), from.width, out.row(static_cast<int64_t>(i)));
  return out;
}

}  // namespace

Result<MlpGradient> MlpGradient::load(const Weights& weights, const MlpSources& sources) {
  MlpGradient mlp;
  mlp.gate = TRY(DenseLinear::load(weights, sources.gate));
  mlp.up = TRY(DenseLinear::load(weights, sources.up));
  mlp.down = TRY(DenseLinear::load(weights, sources.down));
  return mlp;
}

Rows MlpGradient::run(const Rows& x, const Pass& pass, Trace& trace) const {
  trace.gate = gate.apply(x, pass.threads);
  trace.up = up.apply(x, pass.threads);
  trace.active = Rows(x.count, gate.rows());
  for (size_t i = 0; i < trace.active.values.size(); ++i)
    trace.active.values[i] = silu(trace.gate.values[i]) * trace.up.values[i];
  return down.apply(trace.active, pass.threads);
}

Rows MlpGradient::back(const Rows& x, const Trace& trace, const Rows& dy, const Pass& pass,
                       std::span<const int32_t> rows) const {
  Rows dgate(x.count, gate.rows()), dup(x.count, gate.rows()), dx(x.count, x.width);
  Rows dactive(x.count, gate.rows());
  down.add_back(trace.active, dy, dactive, pass, rows);
  for (size_t i = 0; i < dactive.values.size(); ++i) {
    const float g = trace.gate.values[i];
    dgate.values[i] = dactive.values[i] * trace.up.values[i] * silu_slope(g);
    dup.values[i] = dactive.values[i] * silu(g);
  }
  gate.add_back(x, dgate, dx, pass, rows);
  up.add_back(x, dup, dx, pass, rows);
  return dx;
}

Result<MoeGradient> MoeGradient::load(const Weights& weights, const MoeSources& sources,
                                      const ModelConfig& config) {
  MoeGradient moe;
  moe.config_ = *config.moe;
  moe.router_ = TRY(DenseLinear::load(weights, sources.router));
  for (const MlpSources& expert : sources.experts)
    moe.experts_.push_back(TRY(MlpGradient::load(weights, expert)));
  moe.shared_ = TRY(MlpGradient::load(weights, sources.shared));
  moe.shared_gate_ = TRY(DenseLinear::load(weights, sources.shared_gate));
  return moe;
}

/// The top_k largest, of equal ones the lower index; their weights sum to 1 if the config says so.
void MoeGradient::choose(int64_t row, const float* logits, Trace& trace) const {
  std::vector<int32_t> order(static_cast<size_t>(config_.experts));
  for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int32_t>(e);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  order.resize(static_cast<size_t>(config_.top_k));
  const float* p = trace.probabilities.row(row);
  float total = 0;
  for (const int32_t e : order) total += p[e];
  for (const int32_t e : order) {
    ExpertTrace& expert = trace.experts[static_cast<size_t>(e)];
    expert.rows.push_back(static_cast<int32_t>(row));
    expert.weights.push_back(config_.renormalize ? p[e] / total : p[e]);
  }
}

void MoeGradient::route(const Rows& logits, Trace& trace) const {
  trace.probabilities = logits;
  trace.experts.assign(experts_.size(), {});
  for (int64_t r = 0; r < logits.count; ++r) {
    float* p = trace.probabilities.row(r);
    const float highest = *std::max_element(p, p + logits.width);
    float total = 0;
    for (int64_t e = 0; e < logits.width; ++e) total += p[e] = std::exp(p[e] - highest);
    for (int64_t e = 0; e < logits.width; ++e) p[e] /= total;
    choose(r, logits.row(r), trace);
  }
}

void MoeGradient::add_shared(const Rows& x, const Pass& pass, Trace& trace, Rows& y) const {
  trace.shared_y = shared_.run(x, pass, trace.shared);
  trace.shared_gate = shared_gate_.apply(x, pass.threads);
  for (int64_t r = 0; r < y.count; ++r)
    add_scaled(sigmoid(trace.shared_gate.row(r)[0]), trace.shared_y.row(r), y.row(r), y.width);
}

Rows MoeGradient::run(const Rows& x, const Pass& pass, Trace& trace) const {
  route(router_.apply(x, pass.threads), trace);
  Rows y(x.count, x.width);
  for (size_t e = 0; e < experts_.size(); ++e) {
    ExpertTrace& expert = trace.experts[e];
    if (expert.rows.empty()) continue;
    expert.x = gather(x, expert.rows);
    expert.y = experts_[e].run(expert.x, pass, expert.inner);
    for (size_t i = 0; i < expert.rows.size(); ++i)
      add_scaled(expert.weights[i], expert.y.row(static_cast<int64_t>(i)), y.row(expert.rows[i]),
                 y.width);
  }
  if (config_.shared_width > 0) add_shared(x, pass, trace, y);
  return y;
}

void MoeGradient::expert_back(size_t e, const Trace& trace, const Rows& dy, const Pass& pass,
                              Gradients& d) const {
  const ExpertTrace& expert = trace.experts[e];
  if (expert.rows.empty()) return;
  Rows down = gather(dy, expert.rows);
  for (size_t i = 0; i < expert.rows.size(); ++i) {
    float* row = down.row(static_cast<int64_t>(i));
    d.weights.row(expert.rows[i])[e] = dot(row, expert.y.row(static_cast<int64_t>(i)), dy.width);
    for (int64_t j = 0; j < dy.width; ++j) row[j] *= expert.weights[i];
  }
  const Rows dinput = experts_[e].back(expert.x, expert.inner, down, pass, expert.rows);
  for (size_t i = 0; i < expert.rows.size(); ++i)
    add_scaled(1.0F, dinput.row(static_cast<int64_t>(i)), d.x.row(expert.rows[i]), d.x.width);
}

/// With p the softmax over all experts and w_e the weight of a chosen one: renormalised weights are
/// the softmax over the chosen, so dlogit_e = w_e (dw_e - sum_c w_c dw_c) for those; otherwise
/// w_e = p_e, and dlogit_e = p_e (dw_e - sum_c p_c dw_c) for all, dw being 0 where not chosen.
Rows MoeGradient::logits_back(const Trace& trace, const Rows& dweights) const {
  Rows weights(dweights.count, dweights.width);
  for (size_t e = 0; e < trace.experts.size(); ++e)
    for (size_t i = 0; i < trace.experts[e].rows.size(); ++i)
      weights.row(trace.experts[e].rows[i])[e] = trace.experts[e].weights[i];
  Rows dlogits(dweights.count, dweights.width);
  for (int64_t r = 0; r < dweights.count; ++r) {
    const float mean = dot(weights.row(r), dweights.row(r), dweights.width);
    const float* p = config_.renormalize ? weights.row(r) : trace.probabilities.row(r);
    for (int64_t e = 0; e < dweights.width; ++e)
      dlogits.row(r)[e] = p[e] * (dweights.row(r)[e] - mean);
  }
  return dlogits;
}

void MoeGradient::shared_back(const Rows& x, const Trace& trace, const Rows& dy, const Pass& pass,
                              Rows& dx) const {
  Rows dgate(x.count, 1), dshared = dy;
  for (int64_t r = 0; r < x.count; ++r) {
    const float s = sigmoid(trace.shared_gate.row(r)[0]);
    dgate.row(r)[0] = s * (1.0F - s) * dot(dy.row(r), trace.shared_y.row(r), dy.width);
    for (int64_t j = 0; j < dy.width; ++j) dshared.row(r)[j] *= s;
  }
  const Rows dinput = shared_.back(x, trace.shared, dshared, pass);
  for (size_t i = 0; i < dx.values.size(); ++i) dx.values[i] += dinput.values[i];
  shared_gate_.add_back(x, dgate, dx, pass);
}

Rows MoeGradient::back(const Rows& x, const Trace& trace, const Rows& dy, const Pass& pass) const {
  Gradients d{.x = Rows(x.count, x.width), .weights = Rows(x.count, config_.experts)};
  for (size_t e = 0; e < experts_.size(); ++e) expert_back(e, trace, dy, pass, d);
  router_.add_back(x, logits_back(trace, d.weights), d.x, pass);
  if (config_.shared_width > 0) shared_back(x, trace, dy, pass, d.x);
  return std::move(d.x);
}

}  // namespace nibble::gradient
