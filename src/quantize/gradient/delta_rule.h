// The gated delta rule of one head over one sample, forward and backward. Convolution, gates and
// norms around it are delta_net_gradient.h.
#pragma once

#include <cstdint>
#include <vector>

namespace nibble::gradient {

/// Vectors of token t begin at `values` + t * `stride`.
struct Vectors {
  const float* values = nullptr;
  int64_t stride = 0;
  const float* at(int64_t t) const { return values + t * stride; }
};
struct MutableVectors {
  float* values = nullptr;
  int64_t stride = 0;
  float* at(int64_t t) const { return values + t * stride; }
};

/// One head: queries and keys of k_dim numbers, of unit length and scaled as the rule takes them,
/// values of v_dim, and per token how much of the state stays (alpha) and is learnt (beta).
struct DeltaRule {
  int64_t tokens = 0, k_dim = 0, v_dim = 0;
  Vectors q, k, v;
  std::vector<float> alpha, beta;  // [tokens]
};

/// The states [k_dim, v_dim] before tokens 0, kDeltaChunk, 2 kDeltaChunk, ..., one after the other.
using DeltaStates = std::vector<float>;
inline constexpr int64_t kDeltaChunk = 64;

/// From a state S of zeros, per token:
///   S = alpha S;  u = beta (v - S^T k);  S = S + k u^T;  out = S^T q
/// (Gated Delta Networks, arXiv 2412.06464). Gives what run_delta_rule_back needs.
DeltaStates run_delta_rule(const DeltaRule& rule, const MutableVectors& out);

/// Where the gradients of a head go. dq, dk and dv are added to; dalpha and dbeta are [tokens].
struct DeltaRuleGradients {
  MutableVectors dq, dk, dv;
  std::vector<float> dalpha = {}, dbeta = {};
};

/// The gradients of all that the rule reads, given those of `out`. States inside a chunk are
/// computed again.
void run_delta_rule_back(const DeltaRule& rule, const DeltaStates& states, const Vectors& dout,
                         DeltaRuleGradients& gradients);

}  // namespace nibble::gradient
