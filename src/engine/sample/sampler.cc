// Order of operations: model/token_choice.h.
#include "engine/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/planted_bug.h"
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

Error not_finite_error() {
  return make_error(ErrorCode::corrupt, {.what = "the model computed a logit that is not a number",
                                         .advice = "check the model with nibble verify"});
}

/// `share` of 2^64, rounded down; below 2^64 - 1.
uint64_t of_two_to_64(double share) {
  constexpr double kLargest = 1.0 - 0x1.0p-53;
  return static_cast<uint64_t>(std::clamp(share, 0.0, kLargest) * 0x1.0p64);
}

ChoiceRule rule_of(const SamplingParams& params, uint64_t position) {
  ChoiceRule rule;
  if (!params.greedy())
    rule.scale = std::max(static_cast<float>(std::numbers::log2e / params.temperature),
                          std::numeric_limits<float>::min());
  rule.repetition = static_cast<float>(params.repetition_penalty);
  rule.presence = static_cast<float>(params.presence_penalty);
  rule.frequency = static_cast<float>(params.frequency_penalty);
  const double weight = std::clamp(params.min_p, 0.0, 1.0) * 0x1.0p44;
  static_assert(kWeightBits == 44);
  rule.min_weight = static_cast<uint64_t>(std::ceil(weight));
  if (params.top_p < 1.0) rule.top_p = of_two_to_64(params.top_p);
  rule.u = random_bits_at(params.seed, planted(kBugRngIgnoresChoice) ? 0 : params.choice, position);
  rule.top_k = std::max(params.top_k, 0);
  rule.top_logprobs = params.top_logprobs;
  return rule;
}

PositionLogprobs logprobs_of(const ChosenToken& chosen) {
  const auto best = static_cast<double>(chosen.best);
  const double sum = static_cast<double>(chosen.mass) * 0x1.0p-44;
  const double log_total = std::isfinite(best) ? best + std::log(sum) : 0.0;
  const auto entry = [&](const TokenLogit& of) {
    return TokenLogprob{of.token, static_cast<double>(of.logit) - log_total};
  };
  PositionLogprobs result{.chosen = entry(chosen.chosen), .top = {}, .rank = chosen.rank};
  for (const TokenLogit& of : chosen.top) result.top.push_back(entry(of));
  return result;
}

}  // namespace

Sampler::Sampler(int32_t vocab_rows, std::vector<uint32_t> sampleable)
    : vocab_rows_(vocab_rows), sampleable_(std::move(sampleable)) {
  CHECK(vocab_rows_ > 0 && vocab_rows_ <= 1 << (63 - kWeightBits), "vocab_rows ", vocab_rows_);
  CHECK(sampleable_.size() == (static_cast<size_t>(vocab_rows_) + 31) / 32, "mask words ",
        sampleable_.size(), " for ", vocab_rows_, " rows");
  slot_of_token_.assign(static_cast<size_t>(vocab_rows_), 0);
  count_of_token_.assign(static_cast<size_t>(vocab_rows_), 0);
}

std::vector<uint32_t> Sampler::all_sampleable(int32_t vocab_rows) {
  return std::vector<uint32_t>((static_cast<size_t>(vocab_rows) + 31) / 32, ~0U);
}

TokenChoice Sampler::choice_of(const SamplingParams& params, const TokenHistory& history,
                               uint64_t position, std::span<const uint32_t> mask) {
  return {.rule = rule_of(params, position),
          .bias = params.logit_bias,
          .history = history,
          .mask = mask};
}

Result<SampledToken> Sampler::sample(std::span<const float> logits, const SamplingParams& params,
                                     const TokenHistory& history, uint64_t position,
                                     std::span<const uint32_t> mask) {
  const TokenChoice choice = choice_of(params, history, position, mask);
  return result_of(choose(logits, choice), choice.rule);
}

Result<SampledToken> Sampler::result_of(const ChosenToken& chosen, const ChoiceRule& rule) {
  if (!chosen.sound) return not_finite_error();
  if (chosen.token < 0)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "no token may follow: every token of the vocabulary is masked"});
  SampledToken result{.token = chosen.token, .logprobs = {}};
  if (rule.top_logprobs >= 0) result.logprobs = logprobs_of(chosen);
  return result;
}

ChosenToken Sampler::choose(std::span<const float> logits, const TokenChoice& choice) {
  CHECK(static_cast<int32_t>(logits.size()) == vocab_rows_, "logits ", logits.size());
  CHECK(choice.mask.empty() || choice.mask.size() == sampleable_.size(), "mask words ",
        choice.mask.size());
  ChosenToken out;
  out.sound = below_infinity(logits);
  if (!out.sound) return out;
  gather(logits, choice.mask);
  if (candidates_.empty()) return out;
  if (!choice.bias.empty()) apply_bias(choice.bias);
  if (choice.rule.penalizes()) apply_penalties(choice.rule, choice.history);
  out.token = draw(choice.rule);
  if (choice.rule.top_logprobs >= 0) describe(logits, out.token, choice.rule.top_logprobs, out);
  return out;
}

Result<PositionLogprobs> Sampler::logprobs(std::span<const float> logits, int32_t token,
                                           int32_t top) const {
  CHECK(static_cast<int32_t>(logits.size()) == vocab_rows_, "logits ", logits.size());
  CHECK(token >= 0 && token < vocab_rows_ && top >= 0, "token ", token, ", top ", top);
  if (!below_infinity(logits)) return not_finite_error();
  ChosenToken out;
  describe(logits, token, top, out);
  return logprobs_of(out);
}

void Sampler::gather(std::span<const float> logits, std::span<const uint32_t> mask) {
  candidates_.clear();
  for (int32_t token = 0; token < vocab_rows_; ++token) {
    if (!has_token(sampleable_, token) && !planted(kBugPaddingSampleable)) continue;
    if (!mask.empty() && !has_token(mask, token)) continue;
    slot_of_token_[static_cast<size_t>(token)] = static_cast<int32_t>(candidates_.size());
    candidates_.push_back({.logit = logits[static_cast<size_t>(token)], .token = token});
  }
}

/// Index of a token's candidate, or -1. The slots of other tokens may be old ones.
int32_t Sampler::slot_of(int32_t token) const {
  if (token < 0 || token >= vocab_rows_) return -1;
  const int32_t at = slot_of_token_[static_cast<size_t>(token)];
  const auto slot = static_cast<size_t>(at);
  return slot < candidates_.size() && candidates_[slot].token == token ? at : -1;
}

void Sampler::apply_bias(std::span<const LogitBias> bias) {
  for (const LogitBias& entry : bias) {
    const int32_t at = slot_of(entry.token);
    if (at < 0) continue;
    float& logit = candidates_[static_cast<size_t>(at)].logit;
    logit = ordered_logit(choice::sum(logit, entry.bias));
  }
}

void Sampler::apply_penalties(const ChoiceRule& rule, const TokenHistory& history) {
  constexpr int32_t kOnlyInPrompt = -1;  // in count_of_token_
  for (const auto said : {history.generated, history.drafted})
    for (const int32_t token : said)
      if (slot_of(token) >= 0) ++count_of_token_[static_cast<size_t>(token)];
  for (const int32_t token : history.prompt)
    if (slot_of(token) >= 0 && count_of_token_[static_cast<size_t>(token)] == 0)
      count_of_token_[static_cast<size_t>(token)] =
          planted(kBugPresenceCountsPrompt) ? 1 : kOnlyInPrompt;

  const auto penalize = [&](int32_t token) {
    const int32_t at = slot_of(token);
    if (at < 0) return;
    int32_t& count = count_of_token_[static_cast<size_t>(token)];
    if (count == 0) return;  // done already
    float& logit = candidates_[static_cast<size_t>(at)].logit;
    logit = ordered_logit(penalized(logit, rule, std::clamp(count, 0, kCountedMost)));
    count = 0;
  };
  for (const auto said : {history.generated, history.drafted, history.prompt})
    for (const int32_t token : said) penalize(token);
}

int32_t Sampler::draw(const ChoiceRule& rule) {
  // `better` is a strict order, so min_element finds the best.
  const Candidate best = *std::min_element(candidates_.begin(), candidates_.end(), better);
  if (rule.scale == 0.0F || !std::isfinite(best.logit)) return best.token;
  const auto weigh = [&] {
    for (Candidate& c : candidates_) c.weight = choice_weight(c.logit, best.logit, rule.scale);
  };
  if (rule.min_weight > 0) {
    weigh();
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < rule.min_weight; });
  }
  const bool cut = rule.top_k > 0 && static_cast<size_t>(rule.top_k) < candidates_.size();
  if (cut) keep_best(rule.top_k);
  if (rule.min_weight == 0) weigh();
  const bool nucleus = rule.top_p != ChoiceRule::kKeepAll;
  if (nucleus) keep_nucleus(rule.top_p);
  if (cut || nucleus) std::ranges::sort(candidates_, {}, &Candidate::token);
  return pick(rule.u);
}

void Sampler::keep_best(int32_t count) {
  std::nth_element(candidates_.begin(), candidates_.begin() + count, candidates_.end(), better);
  candidates_.resize(static_cast<size_t>(count));
}

/// A candidate stays while the weight of those before it, the best first, is below the bound. Sorts
/// only as far as it looks.
void Sampler::keep_nucleus(uint64_t top_p) {
  constexpr size_t kSortedFirst = 256;
  uint64_t total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  const uint64_t bound = nucleus_bound(total, top_p);
  const auto begin = candidates_.begin();
  uint64_t before = 0;
  size_t kept = 0;
  size_t sorted = 0;
  while (kept < candidates_.size() && before < bound) {
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

/// Inverse of the cumulative distribution, tokens in ascending order. The best token weighs
/// something, so the target is below the sum.
int32_t Sampler::pick(uint64_t u) const {
  uint64_t total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  const uint64_t target = choice_target(total, u);
  uint64_t cumulative = 0;
  for (const Candidate& c : candidates_) {
    cumulative += c.weight;
    if (cumulative > target) return c.token;
  }
  CHECK(false, "a draw of ", target, " from ", total);
}

void Sampler::describe(std::span<const float> logits, int32_t token, int32_t top,
                       ChosenToken& out) const {
  const auto logit_of = [&](int32_t of) { return TokenLogit{of, logits[static_cast<size_t>(of)]}; };
  out.token = token;
  out.chosen = logit_of(token);
  out.best = *std::max_element(logits.begin(), logits.end());
  if (std::isfinite(out.best))
    for (const float logit : logits) out.mass += choice_weight(logit, out.best, kLog2E);
  const auto most = static_cast<size_t>(top);
  for (int32_t other = 0; other < vocab_rows_; ++other) {
    if (!has_token(sampleable_, other)) continue;
    const TokenLogit candidate = logit_of(other);
    out.rank += better(candidate, out.chosen) ? 1 : 0;
    if (most == 0 || (out.top.size() == most && !better(candidate, out.top.back()))) continue;
    if (out.top.size() == most) out.top.pop_back();
    out.top.insert(std::ranges::upper_bound(out.top, candidate, better), candidate);
  }
}

}  // namespace nibble
