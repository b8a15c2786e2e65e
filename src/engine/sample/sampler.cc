// Order of operations: engine/sample/sampling_params.h.
#include "engine/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/planted_bug.h"
#include "engine/sample/counter_random.h"
#include "engine/sample/token_bits.h"

namespace nibble {

namespace {

bool below_infinity(std::span<const float> logits) {
  bool sound = true;
  for (const float logit : logits)
    sound &= logit < std::numeric_limits<float>::infinity();  // false for NaN
  return sound;
}

}  // namespace

Sampler::Sampler(int32_t vocab_rows, std::vector<uint32_t> sampleable)
    : vocab_rows_(vocab_rows), sampleable_(std::move(sampleable)) {
  CHECK(vocab_rows_ > 0, "vocab_rows ", vocab_rows_);
  CHECK(sampleable_.size() == (static_cast<size_t>(vocab_rows_) + 31) / 32, "mask words ",
        sampleable_.size(), " for ", vocab_rows_, " rows");
  slot_of_token_.assign(static_cast<size_t>(vocab_rows_), 0);
  count_of_token_.assign(static_cast<size_t>(vocab_rows_), 0);
}

Error Sampler::not_finite_error() {
  return make_error(ErrorCode::corrupt, {.what = "the model computed a logit that is not a number",
                                         .advice = "check the model with nibble verify"});
}

std::vector<uint32_t> Sampler::all_sampleable(int32_t vocab_rows) {
  return std::vector<uint32_t>((static_cast<size_t>(vocab_rows) + 31) / 32, ~0U);
}

Result<SampledToken> Sampler::sample(std::span<const float> logits, const SamplingParams& params,
                                     const TokenHistory& history, uint64_t position,
                                     std::span<const uint32_t> mask) {
  CHECK(static_cast<int32_t>(logits.size()) == vocab_rows_, "logits ", logits.size());
  CHECK(mask.empty() || mask.size() == sampleable_.size(), "mask words ", mask.size());
  if (!below_infinity(logits)) return not_finite_error();
  gather(logits, mask);
  if (candidates_.empty())
    return make_error(ErrorCode::invalid_argument,
                      {.what = "no token may follow: every token of the vocabulary is masked"});
  apply_bias_and_penalties(params, history);
  SampledToken result;
  result.token = draw(params, position);
  if (params.wants_logprobs())
    result.logprobs = raw_logprobs(logits, result.token, params.top_logprobs);
  return result;
}

Result<PositionLogprobs> Sampler::logprobs(std::span<const float> logits, int32_t token,
                                           int32_t top) const {
  CHECK(static_cast<int32_t>(logits.size()) == vocab_rows_, "logits ", logits.size());
  CHECK(token >= 0 && token < vocab_rows_ && top >= 0, "token ", token, ", top ", top);
  if (!below_infinity(logits)) return not_finite_error();
  return raw_logprobs(logits, token, top);
}

void Sampler::gather(std::span<const float> logits, std::span<const uint32_t> mask) {
  candidates_.clear();
  for (int32_t token = 0; token < vocab_rows_; ++token) {
    if (!has_token(sampleable_, token) && !planted(kBugPaddingSampleable)) continue;
    if (!mask.empty() && !has_token(mask, token)) continue;
    add_candidate(static_cast<double>(logits[static_cast<size_t>(token)]), token);
  }
}

void Sampler::add_candidate(double logit, int32_t token) {
  slot_of_token_[static_cast<size_t>(token)] = static_cast<int32_t>(candidates_.size());
  candidates_.push_back({.logit = logit, .token = token});
}

/// Index of a token's candidate, or -1. The slots of other tokens may be old ones.
int32_t Sampler::slot_of(int32_t token) const {
  if (token < 0 || token >= vocab_rows_) return -1;
  const int32_t at = slot_of_token_[static_cast<size_t>(token)];
  const auto slot = static_cast<size_t>(at);
  return slot < candidates_.size() && candidates_[slot].token == token ? at : -1;
}

void Sampler::apply_bias_and_penalties(const SamplingParams& params, const TokenHistory& history) {
  const auto slot = [this](int32_t token) { return slot_of(token); };
  for (const LogitBias& entry : params.logit_bias)
    if (const int32_t at = slot(entry.token); at >= 0)
      candidates_[static_cast<size_t>(at)].logit += entry.bias;

  const double repetition = params.repetition_penalty;
  const bool additive = params.presence_penalty != 0.0 || params.frequency_penalty != 0.0;
  if (repetition == 1.0 && !additive) return;
  constexpr int32_t kOnlyInPrompt = -1;  // in count_of_token_
  for (const auto said : {history.generated, history.drafted})
    for (const int32_t token : said)
      if (slot(token) >= 0) ++count_of_token_[static_cast<size_t>(token)];
  for (const int32_t token : history.prompt)
    if (slot(token) >= 0 && count_of_token_[static_cast<size_t>(token)] == 0)
      count_of_token_[static_cast<size_t>(token)] =
          planted(kBugPresenceCountsPrompt) ? 1 : kOnlyInPrompt;

  const auto penalize = [&](int32_t token) {
    const int32_t at = slot(token);
    if (at < 0) return;
    int32_t& count = count_of_token_[static_cast<size_t>(token)];
    if (count == 0) return;  // done already
    double& logit = candidates_[static_cast<size_t>(at)].logit;
    logit = logit > 0.0 ? logit / repetition : logit * repetition;
    if (count > 0) logit -= params.presence_penalty + params.frequency_penalty * count;
    count = 0;
  };
  for (const auto said : {history.generated, history.drafted, history.prompt})
    for (const int32_t token : said) penalize(token);
}

int32_t Sampler::draw(const SamplingParams& params, uint64_t position) {
  // `better` is a strict order, so min_element finds the best.
  const Candidate best = *std::min_element(candidates_.begin(), candidates_.end(), better);
  if (params.greedy() || !std::isfinite(best.logit)) return best.token;
  // min-p and top-k both keep the best so many, so their order is free: the cheaper one first.
  const bool cut = params.top_k > 0 && static_cast<size_t>(params.top_k) < candidates_.size();
  if (cut) keep_best(params.top_k);
  for (Candidate& c : candidates_) c.weight = std::exp((c.logit - best.logit) / params.temperature);
  if (params.min_p > 0.0)
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < params.min_p; });
  if (params.top_p < 1.0) keep_nucleus(params.top_p);
  if (cut || params.top_p < 1.0) std::ranges::sort(candidates_, {}, &Candidate::token);
  return pick(uniform_of(params, position));
}

double Sampler::uniform_of(const SamplingParams& params, uint64_t position) {
  const uint32_t choice = planted(kBugRngIgnoresChoice) ? 0 : params.choice;
  return uniform_at(params.seed, choice, position);
}

void Sampler::keep_best(int32_t count) {
  std::nth_element(candidates_.begin(), candidates_.begin() + count, candidates_.end(), better);
  candidates_.resize(static_cast<size_t>(count));
}

/// A candidate stays while the mass of those before it, the best first, is below top_p. Sorts only
/// as far as it looks.
void Sampler::keep_nucleus(double top_p) {
  constexpr size_t kSortedFirst = 256;
  double total = 0.0;
  for (const Candidate& c : candidates_) total += c.weight;
  const auto begin = candidates_.begin();
  double before = 0.0;
  size_t kept = 0;
  size_t sorted = 0;
  while (kept < candidates_.size() && (kept == 0 || before < top_p * total)) {
    if (kept == sorted) {
      sorted = std::min(std::max(2 * sorted, kSortedFirst), candidates_.size());
      const auto middle = begin + static_cast<ptrdiff_t>(sorted);
      std::nth_element(begin + static_cast<ptrdiff_t>(kept), middle, candidates_.end(), better);
      std::sort(begin + static_cast<ptrdiff_t>(kept), middle, better);
    }
    before += candidates_[kept++].weight;
  }
  if (planted(kBugTopPKeepsTail)) kept = std::min(kept + 1, candidates_.size());
  candidates_.resize(kept);
}

/// Inverse of the cumulative distribution, tokens in ascending order; u in [0, 1).
int32_t Sampler::pick(double u) const {
  double total = 0.0;
  for (const Candidate& c : candidates_) total += c.weight;
  const double target = u * total;
  double cumulative = 0.0;
  int32_t last_possible = candidates_.front().token;
  for (const Candidate& c : candidates_) {
    if (c.weight > 0.0) last_possible = c.token;
    cumulative += c.weight;
    if (cumulative > target) return c.token;
  }
  return last_possible;  // rounding left the target at the very end
}

PositionLogprobs Sampler::raw_logprobs(std::span<const float> logits, int32_t chosen,
                                       int32_t top) const {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  const double log_total = std::isfinite(max) ? max + std::log(sum) : 0.0;
  const auto logit_of = [&](int32_t token) { return logits[static_cast<size_t>(token)]; };
  const auto entry = [&](int32_t token) {
    return TokenLogprob{token, static_cast<double>(logit_of(token)) - log_total};
  };
  const auto likelier = [&](int32_t a, int32_t b) {
    return logit_of(a) > logit_of(b) || (logit_of(a) == logit_of(b) && a < b);
  };
  PositionLogprobs result{.chosen = entry(chosen), .top = {}};
  std::vector<int32_t> tokens;
  for (int32_t token = 0; token < vocab_rows_; ++token) {
    if (!has_token(sampleable_, token)) continue;
    result.rank += likelier(token, chosen) ? 1 : 0;
    if (top > 0) tokens.push_back(token);
  }
  const size_t count = std::min(static_cast<size_t>(top), tokens.size());
  std::partial_sort(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count), tokens.end(),
                    likelier);
  tokens.resize(count);
  for (const int32_t token : tokens) result.top.push_back(entry(token));
  return result;
}

}  // namespace nibble
