// The delta rule's gradients against differences of its own outputs, over several chunks.
#include "quantize/gradient/delta_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace nibble::gradient {
namespace {

constexpr int64_t kTokens = 150, kKeys = 3, kValues = 5;

struct Case {
  std::vector<float> q, k, v, alpha, beta, weights;  // weights: of the outputs, in a sum

  Case() {
    std::mt19937_64 random(9);
    std::normal_distribution<float> normal(0, 1);
    std::uniform_real_distribution<float> uniform(0.2F, 0.95F);
    const auto draw = [&](int64_t count, auto& from) {
      std::vector<float> out(static_cast<size_t>(count));
      for (float& value : out) value = from(random);
      return out;
    };
    q = draw(kTokens * kKeys, normal);
    k = draw(kTokens * kKeys, normal);
    v = draw(kTokens * kValues, normal);
    weights = draw(kTokens * kValues, normal);
    alpha = draw(kTokens, uniform);
    beta = draw(kTokens, uniform);
    for (int64_t t = 0; t < kTokens; ++t) {  // keys of unit length keep the state bounded
      float* key = &k[static_cast<size_t>(t * kKeys)];
      const float length = std::hypot(key[0], key[1], key[2]);
      for (int64_t i = 0; i < kKeys; ++i) key[i] /= length;
    }
  }

  DeltaRule rule() const {
    return {.tokens = kTokens,
            .k_dim = kKeys,
            .v_dim = kValues,
            .q = {.values = q.data(), .stride = kKeys},
            .k = {.values = k.data(), .stride = kKeys},
            .v = {.values = v.data(), .stride = kValues},
            .alpha = alpha,
            .beta = beta};
  }

  double sum() const {
    std::vector<float> out(weights.size());
    run_delta_rule(rule(), {.values = out.data(), .stride = kValues});
    double total = 0;
    for (size_t i = 0; i < out.size(); ++i) total += static_cast<double>(out[i]) * weights[i];
    return total;
  }

  /// The slope of sum() in one number, from both sides.
  double slope(float& number) const {
    constexpr float kStep = 1e-2F;
    const float kept = number;
    number = kept + kStep;
    const double above = sum();
    number = kept - kStep;
    const double below = sum();
    number = kept;
    return (above - below) / (2.0 * static_cast<double>(kStep));
  }
};

TEST(DeltaRule, GradientsAreDifferencesOfOutputs) {
  Case c;
  std::vector<float> out(c.weights.size()), dq(c.q.size()), dk(c.k.size()), dv(c.v.size());
  const DeltaRule rule = c.rule();
  const DeltaStates states = run_delta_rule(rule, {.values = out.data(), .stride = kValues});
  EXPECT_EQ(states.size(), 3U * kKeys * kValues);
  DeltaRuleGradients found{.dq = {.values = dq.data(), .stride = kKeys},
                           .dk = {.values = dk.data(), .stride = kKeys},
                           .dv = {.values = dv.data(), .stride = kValues}};
  run_delta_rule_back(rule, states, {.values = c.weights.data(), .stride = kValues}, found);
  for (int64_t t = 0; t < kTokens; t += 7) {
    const auto at = static_cast<size_t>(t);
    EXPECT_NEAR(found.dalpha[at], c.slope(c.alpha[at]), 5e-3) << t;
    EXPECT_NEAR(found.dbeta[at], c.slope(c.beta[at]), 5e-3) << t;
    for (size_t i = at * kKeys; i < (at + 1) * kKeys; ++i) {
      EXPECT_NEAR(dq[i], c.slope(c.q[i]), 5e-3) << t;
      EXPECT_NEAR(dk[i], c.slope(c.k[i]), 5e-3) << t;
    }
    for (size_t i = at * kValues; i < (at + 1) * kValues; ++i)
      EXPECT_NEAR(dv[i], c.slope(c.v[i]), 5e-3) << t;
  }
}

}  // namespace
}  // namespace nibble::gradient
