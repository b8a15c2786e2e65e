// Work is divided by sample and head, or by row, so that every number is made by one thread.
#include "quantize/gradient/delta_net_gradient.h"

#include <algorithm>
#include <cmath>

#include "quantize/gradient/vector_sums.h"

namespace nibble::gradient {
namespace {

constexpr float kUnitEps = 1e-6F;  // inside the root of the squared length, not of its mean

float softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

/// y = x / sqrt(sum(x^2) + eps) * scale.
void unit_length(const float* x, int64_t count, float scale, float* y) {
  const float factor = scale / std::sqrt(dot(x, x, count) + kUnitEps);
  for (int64_t i = 0; i < count; ++i) y[i] = factor * x[i];
}

/// With f = scale / r and r the root: dx += f (dy - x (x . dy) / r^2).
void add_unit_length_back(const float* x, int64_t count, float scale, const float* dy, float* dx) {
  const float squares = dot(x, x, count) + kUnitEps;
  const float factor = scale / std::sqrt(squares);
  const float along = dot(x, dy, count) / squares;
  for (int64_t i = 0; i < count; ++i) dx[i] += factor * (dy[i] - x[i] * along);
}

void each_row(const Pass& pass, int64_t rows, const std::function<void(int64_t)>& work) {
  pass.threads.parallel_for(static_cast<size_t>(rows), 16, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) work(static_cast<int64_t>(r));
  });
}

}  // namespace

Result<DeltaNetGradient> DeltaNetGradient::load(const Weights& weights,
                                                const DeltaNetSources& sources,
                                                const ModelConfig& config) {
  DeltaNetGradient net;
  net.config_ = config.delta_net;
  net.qkv_ = TRY(DenseLinear::load(weights, sources.qkv));
  net.z_ = TRY(DenseLinear::load(weights, sources.z));
  net.b_ = TRY(DenseLinear::load(weights, sources.b));
  net.a_ = TRY(DenseLinear::load(weights, sources.a));
  net.out_ = TRY(DenseLinear::load(weights, sources.out));
  const std::vector<float> conv = TRY(weights.load(sources.conv));  // [qkv_rows, kernel]
  const auto kernel = static_cast<size_t>(net.config_.conv_kernel);
  const size_t channels = conv.size() / kernel;
  net.conv_.resize(conv.size());
  for (size_t i = 0; i < conv.size(); ++i) net.conv_[i % kernel * channels + i / kernel] = conv[i];
  net.a_log_ = TRY(weights.load(sources.a_log));
  net.dt_bias_ = TRY(weights.load(sources.dt_bias));
  net.norm_ = TRY(Norm::load(weights, sources.norm, NormKind::plain, config));
  return net;
}

/// convolved_t = sum_j conv_j qkv_(t - kernel + 1 + j), zeros before the sample.
void DeltaNetGradient::convolve(const Pass& pass, Trace& trace) const {
  const int64_t width = trace.qkv.width, kernel = config_.conv_kernel;
  trace.convolved = Rows(trace.qkv.count, width);
  trace.active = Rows(trace.qkv.count, width);
  for (const SampleRows& sample : pass.samples)
    each_row(pass, sample.count, [&](int64_t t) {
      const int64_t r = sample.begin + t;
      float* out = trace.convolved.row(r);
      for (int64_t j = std::max<int64_t>(0, kernel - 1 - t); j < kernel; ++j) {
        const float *w = conv_.data() + j * width, *x = trace.qkv.row(r - kernel + 1 + j);
        for (int64_t c = 0; c < width; ++c) out[c] += w[c] * x[c];
      }
      for (int64_t c = 0; c < width; ++c) trace.active.row(r)[c] = silu(out[c]);
    });
}

void DeltaNetGradient::convolve_back(const Pass& pass, const Trace& trace, const Rows& dactive,
                                     Rows& dqkv) const {
  const int64_t width = dqkv.width, kernel = config_.conv_kernel;
  Rows dconvolved(dqkv.count, width);
  each_row(pass, dqkv.count, [&](int64_t r) {
    for (int64_t c = 0; c < width; ++c)
      dconvolved.row(r)[c] = dactive.row(r)[c] * silu_slope(trace.convolved.row(r)[c]);
  });
  for (const SampleRows& sample : pass.samples)
    each_row(pass, sample.count, [&](int64_t t) {
      float* out = dqkv.row(sample.begin + t);
      for (int64_t ahead = 0; ahead < std::min(kernel, sample.count - t); ++ahead) {
        const float* w = conv_.data() + (kernel - 1 - ahead) * width;
        const float* d = dconvolved.row(sample.begin + t + ahead);
        for (int64_t c = 0; c < width; ++c) out[c] += w[c] * d[c];
      }
    });
}

void DeltaNetGradient::normalise(const Pass& pass, Trace& trace) const {
  const int64_t rows = trace.active.count, dim = config_.k_dim;
  trace.q = Rows(rows, k_width());
  trace.k = Rows(rows, k_width());
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  each_row(pass, rows, [&](int64_t r) {
    for (int64_t at = 0; at < k_width(); at += dim) {
      unit_length(trace.active.row(r) + at, dim, scale, trace.q.row(r) + at);
      unit_length(trace.active.row(r) + k_width() + at, dim, 1.0F, trace.k.row(r) + at);
    }
  });
}

void DeltaNetGradient::normalise_back(const Pass& pass, const Trace& trace, Gradients& d) const {
  const int64_t dim = config_.k_dim;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  each_row(pass, trace.active.count, [&](int64_t r) {
    const float* active = trace.active.row(r);
    float* dactive = d.active.row(r);
    for (int64_t at = 0; at < k_width(); at += dim) {
      add_unit_length_back(active + at, dim, scale, d.q.row(r) + at, dactive + at);
      add_unit_length_back(active + k_width() + at, dim, 1.0F, d.k.row(r) + at,
                           dactive + k_width() + at);
    }
  });
}

DeltaRule DeltaNetGradient::rule_of(const Trace& trace, const SampleRows& sample,
                                    int64_t head) const {
  const int64_t k_at = head / (config_.v_heads / config_.k_heads) * config_.k_dim;
  const int64_t v_at = 2 * k_width() + head * config_.v_dim;
  const auto h = static_cast<size_t>(head);
  DeltaRule rule{
      .tokens = sample.count,
      .k_dim = config_.k_dim,
      .v_dim = config_.v_dim,
      .q = {.values = trace.q.row(sample.begin) + k_at, .stride = trace.q.width},
      .k = {.values = trace.k.row(sample.begin) + k_at, .stride = trace.k.width},
      .v = {.values = trace.active.row(sample.begin) + v_at, .stride = trace.active.width},
      .alpha = {},
      .beta = {}};
  for (int64_t t = 0; t < sample.count; ++t) {
    const float step = softplus(trace.a.row(sample.begin + t)[head] + dt_bias_[h]);
    rule.alpha.push_back(std::exp(-std::exp(a_log_[h]) * step));
    rule.beta.push_back(sigmoid(trace.b.row(sample.begin + t)[head]));
  }
  return rule;
}

void DeltaNetGradient::recur(const Pass& pass, Trace& trace) const {
  const auto heads = static_cast<size_t>(config_.v_heads);
  trace.mixed = Rows(trace.z.count, trace.z.width);
  trace.states.resize(pass.samples.size() * heads);
  pass.threads.parallel_for(trace.states.size(), 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const SampleRows& sample = pass.samples[i / heads];
      const auto head = static_cast<int64_t>(i % heads);
      trace.states[i] =
          run_delta_rule(rule_of(trace, sample, head),
                         {.values = trace.mixed.row(sample.begin) + head * config_.v_dim,
                          .stride = trace.mixed.width});
    }
  });
}

/// Heads of values that share one of keys go one after the other, as they add to its gradient.
void DeltaNetGradient::recur_back(const Pass& pass, const Trace& trace, Gradients& d) const {
  const auto k_heads = static_cast<size_t>(config_.k_heads);
  const int64_t group = config_.v_heads / config_.k_heads;
  pass.threads.parallel_for(pass.samples.size() * k_heads, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const size_t sample = i / k_heads;
      const int64_t first = static_cast<int64_t>(i % k_heads) * group;
      for (int64_t head = first; head < first + group; ++head) {
        const size_t at = sample * static_cast<size_t>(config_.v_heads) + static_cast<size_t>(head);
        head_back(trace, pass.samples[sample], trace.states[at], head, d);
      }
    }
  });
}

void DeltaNetGradient::head_back(const Trace& trace, const SampleRows& sample,
                                 const DeltaStates& states, int64_t head, Gradients& d) const {
  const DeltaRule rule = rule_of(trace, sample, head);
  const int64_t k_at = head / (config_.v_heads / config_.k_heads) * config_.k_dim;
  const int64_t v_at = 2 * k_width() + head * config_.v_dim;
  DeltaRuleGradients out{
      .dq = {.values = d.q.row(sample.begin) + k_at, .stride = d.q.width},
      .dk = {.values = d.k.row(sample.begin) + k_at, .stride = d.k.width},
      .dv = {.values = d.active.row(sample.begin) + v_at, .stride = d.active.width}};
  run_delta_rule_back(
      rule, states,
      {.values = d.mixed.row(sample.begin) + head * config_.v_dim, .stride = d.mixed.width}, out);
  const auto h = static_cast<size_t>(head);
  const float rate = -std::exp(a_log_[h]);
  for (int64_t t = 0; t < sample.count; ++t) {
    const auto at = static_cast<size_t>(t);
    const float slope = sigmoid(trace.a.row(sample.begin + t)[head] + dt_bias_[h]);
    d.a.row(sample.begin + t)[head] = out.dalpha[at] * rule.alpha[at] * rate * slope;
    d.b.row(sample.begin + t)[head] = out.dbeta[at] * rule.beta[at] * (1.0F - rule.beta[at]);
  }
}

/// gated = norm(mixed) * silu(z), per head.
void DeltaNetGradient::gate(const Pass& pass, Trace& trace) const {
  trace.gated = Rows(trace.z.count, trace.z.width);
  each_row(pass, trace.z.count, [&](int64_t r) {
    float* out = trace.gated.row(r);
    for (int64_t at = 0; at < trace.z.width; at += config_.v_dim)
      norm_.apply(trace.mixed.row(r) + at, out + at);
    for (int64_t i = 0; i < trace.z.width; ++i) out[i] *= silu(trace.z.row(r)[i]);
  });
}

void DeltaNetGradient::gate_back(const Pass& pass, const Trace& trace, const Rows& dgated,
                                 Gradients& d) const {
  const int64_t dim = config_.v_dim;
  each_row(pass, dgated.count, [&](int64_t r) {
    std::vector<float> normed(static_cast<size_t>(dim)), dnormed(normed.size());
    for (int64_t at = 0; at < dgated.width; at += dim) {
      norm_.apply(trace.mixed.row(r) + at, normed.data());
      for (int64_t i = 0; i < dim; ++i) {
        const float z = trace.z.row(r)[at + i], dy = dgated.row(r)[at + i];
        d.z.row(r)[at + i] = dy * normed[static_cast<size_t>(i)] * silu_slope(z);
        dnormed[static_cast<size_t>(i)] = dy * silu(z);
      }
      norm_.add_back(trace.mixed.row(r) + at, dnormed.data(), d.mixed.row(r) + at);
    }
  });
}

Rows DeltaNetGradient::run(const Rows& x, const Pass& pass, Trace& trace) const {
  trace.qkv = qkv_.apply(x, pass.threads);
  trace.z = z_.apply(x, pass.threads);
  trace.b = b_.apply(x, pass.threads);
  trace.a = a_.apply(x, pass.threads);
  convolve(pass, trace);
  normalise(pass, trace);
  recur(pass, trace);
  gate(pass, trace);
  return out_.apply(trace.gated, pass.threads);
}

Rows DeltaNetGradient::back(const Rows& x, const Trace& trace, const Rows& dy,
                            const Pass& pass) const {
  Rows dgated(dy.count, trace.gated.width);
  out_.add_back(trace.gated, dy, dgated, pass);
  const auto like = [](const Rows& rows) { return Rows(rows.count, rows.width); };
  Gradients d{.active = like(trace.active),
              .z = like(trace.z),
              .b = like(trace.b),
              .a = like(trace.a),
              .q = like(trace.q),
              .k = like(trace.k),
              .mixed = like(trace.mixed)};
  gate_back(pass, trace, dgated, d);
  recur_back(pass, trace, d);
  normalise_back(pass, trace, d);
  Rows dqkv = like(trace.qkv);
  convolve_back(pass, trace, d.active, dqkv);
  Rows dx(x.count, x.width);
  qkv_.add_back(x, dqkv, dx, pass);
  z_.add_back(x, d.z, dx, pass);
  b_.add_back(x, d.b, dx, pass);
  a_.add_back(x, d.a, dx, pass);
  return dx;
}

}  // namespace nibble::gradient
