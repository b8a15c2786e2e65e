// A row's probabilities are computed again for its gradient, so nothing of size T x T is kept.
#include "quantize/gradient/attention_gradient.h"

#include <algorithm>
#include <cmath>

#include "quantize/gradient/vector_sums.h"

namespace nibble::gradient {

/// One sample and one head of keys, with the heads of queries that share it.
struct AttentionGradient::HeadRows {
  SampleRows sample;
  int64_t kv_head = 0;
};

namespace {

/// Turns the first dimensions of one head; direction -1 turns back, which is the gradient's way.
void turn(const RopeTable& table, std::span<const float> cos, std::span<const float> sin,
          float direction, float* head) {
  const int64_t pairs = table.pairs();
  for (int64_t i = 0; i < pairs; ++i) {
    const float c = cos[static_cast<size_t>(i)], s = direction * sin[static_cast<size_t>(i)];
    const float low = head[i], high = head[i + pairs];
    head[i] = low * c - high * s;
    head[i + pairs] = high * c + low * s;
  }
}

/// Probabilities of row `row` over keys 0 .. row of a sample. k: the sample's first key of a head.
void probabilities(const float* q, const float* k, int64_t k_stride, int64_t row, int64_t head_dim,
                   std::vector<float>& p) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  p.resize(static_cast<size_t>(row + 1));
  float highest = -INFINITY;
  for (int64_t t = 0; t <= row; ++t) {
    const float score = scale * dot(q, k + t * k_stride, head_dim);
    p[static_cast<size_t>(t)] = score;
    highest = std::max(highest, score);
  }
  double total = 0;
  for (float& value : p) {
    value = std::exp(value - highest);
    total += static_cast<double>(value);
  }
  for (float& value : p) value = static_cast<float>(value / total);
}

}  // namespace

Result<AttentionGradient> AttentionGradient::load(const Weights& weights,
                                                  const AttentionSources& sources,
                                                  const ModelConfig& config) {
  AttentionGradient out;
  out.config_ = config.attention;
  out.rope_ = make_rope_table(config.attention.rope);
  out.q_ = TRY(DenseLinear::load(weights, sources.q));
  out.k_ = TRY(DenseLinear::load(weights, sources.k));
  out.v_ = TRY(DenseLinear::load(weights, sources.v));
  out.o_ = TRY(DenseLinear::load(weights, sources.o));
  out.q_norm_ = TRY(Norm::load(weights, sources.q_norm, config.norm, config));
  out.k_norm_ = TRY(Norm::load(weights, sources.k_norm, config.norm, config));
  return out;
}

/// Rotates every head of q and k to its row's position, or back.
void AttentionGradient::turn_all(const Pass& pass, Rows& q, Rows& k, float direction) const {
  for (const SampleRows& sample : pass.samples)
    pass.threads.parallel_for(static_cast<size_t>(sample.count), 16, [&](size_t begin, size_t end) {
      std::vector<float> cos(static_cast<size_t>(rope_.pairs())), sin(cos.size());
      for (size_t t = begin; t < end; ++t) {
        const auto position = static_cast<int32_t>(t);
        rope_angles(rope_, {position, position, position}, cos, sin);
        for (Rows* rows : {&q, &k}) {
          float* row = rows->row(sample.begin + static_cast<int64_t>(t));
          for (int64_t at = 0; at < rows->width; at += config_.head_dim)
            turn(rope_, cos, sin, direction, row + at);
        }
      }
    });
}

void AttentionGradient::norm_heads(const Trace& trace, Rows& q, Rows& k, const Pass& pass) const {
  pass.threads.parallel_for(static_cast<size_t>(q.count), 16, [&](size_t begin, size_t end) {
    for (auto r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); ++r) {
      for (int64_t h = 0; h < config_.q_heads; ++h)
        q_norm_.apply(trace.projected.row(r) + h * stride(), q.row(r) + h * config_.head_dim);
      for (int64_t at = 0; at < k.width; at += config_.head_dim)
        k_norm_.apply(trace.k_raw.row(r) + at, k.row(r) + at);
    }
  });
}

void AttentionGradient::each_head(const Pass& pass,
                                  const std::function<void(const HeadRows&)>& work) const {
  const auto heads = static_cast<size_t>(config_.kv_heads);
  pass.threads.parallel_for(pass.samples.size() * heads, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      work({.sample = pass.samples[i / heads], .kv_head = static_cast<int64_t>(i % heads)});
  });
}

void AttentionGradient::attend(const HeadRows& head, Trace& trace) const {
  const int64_t dim = config_.head_dim, group = config_.q_heads / config_.kv_heads;
  const int64_t first = head.sample.begin, at_kv = head.kv_head * dim, width = trace.k.width;
  std::vector<float> p;
  for (int64_t i = 0; i < head.sample.count; ++i)
    for (int64_t h = head.kv_head * group; h < (head.kv_head + 1) * group; ++h) {
      probabilities(trace.q.row(first + i) + h * dim, trace.k.row(first) + at_kv, width, i, dim, p);
      float* out = trace.mixed.row(first + i) + h * dim;
      for (int64_t t = 0; t <= i; ++t)
        add_scaled(p[static_cast<size_t>(t)], trace.v.row(first + t) + at_kv, out, dim);
    }
}

/// With p the probabilities and dp_t = dmixed . v_t: the gradient of score t is
/// p_t (dp_t - sum_s p_s dp_s).
void AttentionGradient::attend_back(const HeadRows& head, const Trace& trace, Gradients& d) const {
  const int64_t dim = config_.head_dim, group = config_.q_heads / config_.kv_heads;
  const int64_t first = head.sample.begin, at_kv = head.kv_head * dim, width = trace.k.width;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  std::vector<float> p, dp;
  for (int64_t i = 0; i < head.sample.count; ++i)
    for (int64_t h = head.kv_head * group; h < (head.kv_head + 1) * group; ++h) {
      const float* q = trace.q.row(first + i) + h * dim;
      const float* dmixed = d.mixed.row(first + i) + h * dim;
      probabilities(q, trace.k.row(first) + at_kv, width, i, dim, p);
      dp.resize(p.size());
      for (int64_t t = 0; t <= i; ++t)
        dp[static_cast<size_t>(t)] = dot(dmixed, trace.v.row(first + t) + at_kv, dim);
      const float mean = dot(p.data(), dp.data(), i + 1);
      for (int64_t t = 0; t <= i; ++t) {
        const auto at = static_cast<size_t>(t);
        const float dscore = scale * p[at] * (dp[at] - mean);
        add_scaled(dscore, trace.k.row(first + t) + at_kv, d.q.row(first + i) + h * dim, dim);
        add_scaled(dscore, q, d.k.row(first + t) + at_kv, dim);
        add_scaled(p[at], dmixed, d.v.row(first + t) + at_kv, dim);
      }
    }
}

/// gated = mixed * sigmoid(gate), the gate taken from q_proj's rows [q | gate] of each head.
void AttentionGradient::gate(Trace& trace) const {
  trace.gated = trace.mixed;
  if (!config_.output_gate) return;
  const int64_t dim = config_.head_dim;
  for (int64_t r = 0; r < trace.gated.count; ++r)
    for (int64_t i = 0; i < trace.gated.width; ++i)
      trace.gated.row(r)[i] *= sigmoid(trace.projected.row(r)[(2 * (i / dim) + 1) * dim + i % dim]);
}

void AttentionGradient::gate_back(const Trace& trace, const Rows& dgated, Gradients& d) const {
  d.mixed = dgated;
  if (!config_.output_gate) return;
  const int64_t dim = config_.head_dim;
  for (int64_t r = 0; r < dgated.count; ++r)
    for (int64_t i = 0; i < dgated.width; ++i) {
      const int64_t at = (2 * (i / dim) + 1) * dim + i % dim;
      const float s = sigmoid(trace.projected.row(r)[at]);
      d.mixed.row(r)[i] = dgated.row(r)[i] * s;
      d.projected.row(r)[at] = dgated.row(r)[i] * trace.mixed.row(r)[i] * s * (1.0F - s);
    }
}

Rows AttentionGradient::run(const Rows& x, const Pass& pass, Trace& trace) const {
  trace.projected = q_.apply(x, pass.threads);
  trace.k_raw = k_.apply(x, pass.threads);
  trace.v = v_.apply(x, pass.threads);
  trace.q = Rows(x.count, int64_t{config_.q_heads} * config_.head_dim);
  trace.k = Rows(x.count, trace.k_raw.width);
  norm_heads(trace, trace.q, trace.k, pass);
  turn_all(pass, trace.q, trace.k, 1.0F);
  trace.mixed = Rows(x.count, trace.q.width);
  each_head(pass, [&](const HeadRows& head) { attend(head, trace); });
  gate(trace);
  return o_.apply(trace.gated, pass.threads);
}

void AttentionGradient::norm_heads_back(const Trace& trace, Gradients& d, Rows& dk_raw,
                                        const Pass& pass) const {
  pass.threads.parallel_for(static_cast<size_t>(d.q.count), 16, [&](size_t begin, size_t end) {
    for (auto r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); ++r) {
      for (int64_t h = 0; h < config_.q_heads; ++h)
        q_norm_.add_back(trace.projected.row(r) + h * stride(), d.q.row(r) + h * config_.head_dim,
                         d.projected.row(r) + h * stride());
      for (int64_t at = 0; at < dk_raw.width; at += config_.head_dim)
        k_norm_.add_back(trace.k_raw.row(r) + at, d.k.row(r) + at, dk_raw.row(r) + at);
    }
  });
}

Rows AttentionGradient::back(const Rows& x, const Trace& trace, const Rows& dy,
                             const Pass& pass) const {
  Rows dgated(dy.count, trace.gated.width);
  o_.add_back(trace.gated, dy, dgated, pass);
  Gradients d{.projected = Rows(dy.count, trace.projected.width),
              .q = Rows(dy.count, trace.q.width),
              .k = Rows(dy.count, trace.k.width),
              .v = Rows(dy.count, trace.v.width),
              .mixed = {}};
  gate_back(trace, dgated, d);
  each_head(pass, [&](const HeadRows& head) { attend_back(head, trace, d); });
  turn_all(pass, d.q, d.k, -1.0F);
  Rows dk_raw(dy.count, d.k.width);
  norm_heads_back(trace, d, dk_raw, pass);
  Rows dx(x.count, x.width);
  q_.add_back(x, d.projected, dx, pass);
  k_.add_back(x, dk_raw, dx, pass);
  v_.add_back(x, d.v, dx, pass);
  return dx;
}

}  // namespace nibble::gradient
