// Softmax arithmetic and percentiles.
#include "eval/divergence.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace nibble {
namespace {

/// Smallest value with at least `share` of all values at or below it. `sorted` is not empty.
double nearest_rank(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

}  // namespace

double log_sum_exp(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - highest);
  return highest + std::log(sum);
}

double log_probability(std::span<const float> logits, int32_t token) {
  CHECK(token >= 0 && static_cast<size_t>(token) < logits.size(), "token ", token);
  return logits[static_cast<size_t>(token)] - log_sum_exp(logits);
}

double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  CHECK(p_logits.size() == q_logits.size(), p_logits.size(), " and ", q_logits.size(), " logits");
  const double p_total = log_sum_exp(p_logits);
  const double q_total = log_sum_exp(q_logits);
  double sum = 0.0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = p_logits[i] - p_total;
    sum += std::exp(log_p) * (log_p - (q_logits[i] - q_total));
  }
  return std::max(sum, 0.0);  // rounding may leave -1e-17
}

int32_t top_token(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double DivergenceCollector::add(std::span<const float> reference_logits,
                                std::span<const float> logits) {
  divergences_.push_back(kl_divergence(reference_logits, logits));
  agreements_ += top_token(reference_logits) == top_token(logits) ? 1 : 0;
  return divergences_.back();
}

DivergenceSummary DivergenceCollector::summary() const {
  if (divergences_.empty()) return {};
  std::vector<double> sorted = divergences_;
  std::sort(sorted.begin(), sorted.end());
  const auto count = static_cast<double>(sorted.size());
  double sum = 0.0;
  for (const double value : sorted) sum += value;
  return {.positions = static_cast<int64_t>(sorted.size()),
          .kl_mean = sum / count,
          .kl_median = nearest_rank(sorted, 0.5),
          .kl_p95 = nearest_rank(sorted, 0.95),
          .kl_p99 = nearest_rank(sorted, 0.99),
          .kl_max = sorted.back(),
          .top1_agreement = static_cast<double>(agreements_) / count};
}

}  // namespace nibble
