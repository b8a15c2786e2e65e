// Comparison of two distributions: log-probabilities, KL divergence, agreement, and their summary
// over positions. Arithmetic only; in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nibble {

/// log(sum(exp(logits))), stably.
double log_sum_exp(std::span<const float> logits);
/// log softmax(logits)[token].
double log_probability(std::span<const float> logits, int32_t token);
/// KL(P || Q) = sum p (log p - log q) >= 0 of two rows of logits of one length, in nats.
double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits);
/// Index of the largest; the lowest on a tie.
int32_t top_token(std::span<const float> logits);

struct DivergenceSummary {
  int64_t positions = 0;
  double kl_mean = 0.0;
  double kl_median = 0.0;
  double kl_p95 = 0.0;
  double kl_p99 = 0.0;
  double kl_max = 0.0;
  double top1_agreement = 0.0;  // share of positions with the same most likely token
};

/// Collects positions; percentiles are by nearest rank.
class DivergenceCollector {
 public:
  /// Returns the divergence of the position.
  double add(std::span<const float> reference_logits, std::span<const float> logits);
  DivergenceSummary summary() const;

 private:
  std::vector<double> divergences_;
  int64_t agreements_ = 0;
};

}  // namespace nibble
