// A chunk goes forward with its states kept, then backward through them.
#include "quantize/gradient/delta_rule.h"

#include <algorithm>

#include "quantize/gradient/vector_sums.h"

namespace nibble::gradient {
namespace {

/// out = S^T x.
void transposed_times(const float* s, const float* x, int64_t k_dim, int64_t v_dim, float* out) {
  std::fill_n(out, v_dim, 0.0F);
  for (int64_t i = 0; i < k_dim; ++i) add_scaled(x[i], s + i * v_dim, out, v_dim);
}

/// The state after token t; u: [v_dim], what the token writes.
void step(const DeltaRule& rule, int64_t t, float* s, float* u) {
  const auto at = static_cast<size_t>(t);
  for (int64_t i = 0; i < rule.k_dim * rule.v_dim; ++i) s[i] *= rule.alpha[at];
  transposed_times(s, rule.k.at(t), rule.k_dim, rule.v_dim, u);
  for (int64_t j = 0; j < rule.v_dim; ++j) u[j] = rule.beta[at] * (rule.v.at(t)[j] - u[j]);
  for (int64_t i = 0; i < rule.k_dim; ++i)
    add_scaled(rule.k.at(t)[i], u, s + i * rule.v_dim, rule.v_dim);
}

/// A chunk's states, and the gradient of the state that moves backward through it.
class ChunkBack {
 public:
  explicit ChunkBack(const DeltaRule& rule)
      : rule_(rule),
        size_(rule.k_dim * rule.v_dim),
        states_(static_cast<size_t>((kDeltaChunk + 1) * size_)),
        written_(static_cast<size_t>(kDeltaChunk * rule.v_dim)),
        ds_(static_cast<size_t>(size_)),
        du_(static_cast<size_t>(rule.v_dim)),
        ahead_(static_cast<size_t>(rule.v_dim)) {}

  /// Tokens [begin, end), from the state before the first.
  void run(const float* state, int64_t begin, int64_t end, const Vectors& dout,
           DeltaRuleGradients& d) {
    std::copy_n(state, size_, states_.data());
    for (int64_t t = begin; t < end; ++t) {
      std::copy_n(state_before(t - begin), size_, state_before(t - begin + 1));
      step(rule_, t, state_before(t - begin + 1), written(t - begin));
    }
    for (int64_t t = end - 1; t >= begin; --t) token(t, t - begin, dout.at(t), d);
  }

 private:
  float* state_before(int64_t i) { return states_.data() + i * size_; }
  float* written(int64_t i) { return written_.data() + i * rule_.v_dim; }
  void token(int64_t t, int64_t i, const float* dout, DeltaRuleGradients& d);
  float decay(int64_t i, float alpha);

  const DeltaRule& rule_;
  int64_t size_;
  std::vector<float> states_;   // before each token of the chunk, and after the last
  std::vector<float> written_;  // u of each token
  std::vector<float> ds_;       // the gradient of the state after the token in work
  std::vector<float> du_, ahead_;
};

/// In the order opposite to the rule's. With P = alpha S before the token and p = P^T k the
/// prediction: u = beta (v - p), so dv = beta du, dp = -beta du, and p leads to P and k.
void ChunkBack::token(int64_t t, int64_t i, const float* dout, DeltaRuleGradients& d) {
  const int64_t v_dim = rule_.v_dim;
  const auto at = static_cast<size_t>(t);
  const float *q = rule_.q.at(t), *k = rule_.k.at(t), *v = rule_.v.at(t), *u = written(i);
  const float *before = state_before(i), *after = state_before(i + 1);
  const float alpha = rule_.alpha[at], beta = rule_.beta[at];
  for (int64_t r = 0; r < rule_.k_dim; ++r) {
    d.dq.at(t)[r] += dot(after + r * v_dim, dout, v_dim);
    add_scaled(q[r], dout, ds_.data() + r * v_dim, v_dim);
    d.dk.at(t)[r] += dot(ds_.data() + r * v_dim, u, v_dim);
  }
  transposed_times(ds_.data(), k, rule_.k_dim, v_dim, du_.data());
  transposed_times(before, k, rule_.k_dim, v_dim, ahead_.data());
  float dbeta = 0;
  for (int64_t j = 0; j < v_dim; ++j) {
    dbeta += du_[static_cast<size_t>(j)] * (v[j] - alpha * ahead_[static_cast<size_t>(j)]);
    du_[static_cast<size_t>(j)] *= beta;
    d.dv.at(t)[j] += du_[static_cast<size_t>(j)];
  }
  d.dbeta[at] = dbeta;
  for (int64_t r = 0; r < rule_.k_dim; ++r) {
    d.dk.at(t)[r] -= alpha * dot(before + r * v_dim, du_.data(), v_dim);
    add_scaled(-k[r], du_.data(), ds_.data() + r * v_dim, v_dim);
  }
  d.dalpha[at] = decay(i, alpha);
}

/// The gradient of the state before the token; gives that of alpha.
float ChunkBack::decay(int64_t i, float alpha) {
  const float dalpha = dot(ds_.data(), state_before(i), size_);
  for (float& value : ds_) value *= alpha;
  return dalpha;
}

}  // namespace

DeltaStates run_delta_rule(const DeltaRule& rule, const MutableVectors& out) {
  const int64_t size = rule.k_dim * rule.v_dim;
  DeltaStates states;
  std::vector<float> s(static_cast<size_t>(size)), u(static_cast<size_t>(rule.v_dim));
  for (int64_t t = 0; t < rule.tokens; ++t) {
    if (t % kDeltaChunk == 0) states.insert(states.end(), s.begin(), s.end());
    step(rule, t, s.data(), u.data());
    transposed_times(s.data(), rule.q.at(t), rule.k_dim, rule.v_dim, out.at(t));
  }
  return states;
}

void run_delta_rule_back(const DeltaRule& rule, const DeltaStates& states, const Vectors& dout,
                         DeltaRuleGradients& gradients) {
  gradients.dalpha.assign(static_cast<size_t>(rule.tokens), 0.0F);
  gradients.dbeta.assign(static_cast<size_t>(rule.tokens), 0.0F);
  ChunkBack back(rule);
  const int64_t chunks = (rule.tokens + kDeltaChunk - 1) / kDeltaChunk;
  for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
    const int64_t begin = chunk * kDeltaChunk;
    back.run(states.data() + chunk * rule.k_dim * rule.v_dim, begin,
             std::min(begin + kDeltaChunk, rule.tokens), dout, gradients);
  }
}

}  // namespace nibble::gradient
