// Routing and experts, one token at a time.
#include "backend/reference/moe.h"

#include <algorithm>
#include <cmath>

#include "backend/reference/norm.h"

namespace nibble::reference {

Result<Moe> Moe::load(const Weights& weights, const MoeSources& sources, const ModelConfig& config,
                      const LinearOptions& options) {
  Moe moe;
  moe.config_ = *config.moe;
  moe.router_ = TRY(Linear::load(weights, sources.router, options));
  for (const auto& expert : sources.experts)
    moe.experts_.push_back(TRY(DenseMlp::load(weights, expert, options)));
  moe.shared_ = TRY(DenseMlp::load(weights, sources.shared, options));
  moe.shared_gate_ = TRY(Linear::load(weights, sources.shared_gate, options));
  return moe;
}

std::vector<Moe::Choice> Moe::route(const float* logits) const {
  const auto count = static_cast<size_t>(config_.experts);
  const double highest = *std::max_element(logits, logits + count);
  double total = 0.0;
  for (size_t e = 0; e < count; ++e) total += std::exp(logits[e] - highest);
  std::vector<bool> taken(count);
  std::vector<Choice> choices;
  double chosen = 0.0;
  while (choices.size() < static_cast<size_t>(config_.top_k)) {
    size_t best = count;
    for (size_t e = 0; e < count; ++e)
      if (!taken[e] && (best == count || logits[e] > logits[best])) best = e;
    taken[best] = true;
    choices.push_back({best, std::exp(logits[best] - highest) / total});
    chosen += choices.back().weight;
  }
  if (config_.renormalize)
    for (auto& choice : choices) choice.weight /= chosen;
  return choices;
}

std::vector<float> Moe::run(const std::vector<float>& x) const {
  const auto hidden = static_cast<size_t>(router_.cols());
  const auto count = static_cast<size_t>(config_.experts);
  const std::vector<float> logits = router_.apply(x);
  std::vector<double> sum(x.size());
  for (size_t row = 0; row < x.size() / hidden; ++row) {
    const float* begin = &x[row * hidden];
    const std::vector<float> token(begin, begin + hidden);
    for (const auto& choice : route(&logits[row * count])) {
      const std::vector<float> y = experts_[choice.expert].run(token, static_cast<int64_t>(row));
      for (size_t i = 0; i < hidden; ++i) sum[row * hidden + i] += choice.weight * y[i];
    }
  }
  if (config_.shared_width > 0) add_shared(x, sum);
  return {sum.begin(), sum.end()};
}

void Moe::add_shared(const std::vector<float>& x, std::vector<double>& sum) const {
  const std::vector<float> y = shared_.run(x);
  const std::vector<float> gate = shared_gate_.apply(x);
  const size_t hidden = x.size() / gate.size();
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += sigmoid(gate[i / hidden]) * y[i];
}

}  // namespace nibble::reference
