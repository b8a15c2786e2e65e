// Sampling from a short list: the token that sampling from the whole row gives, or nothing where
// the list leaves it open. Three facts carry the proof: every token that is not listed ranks after
// the last listed token; masks, negative biases and penalties of the usual signs only lower logits;
// and the mass of what is not listed is known within bounds. Where a decision of the whole row's
// arithmetic hangs on less than the rounding of its sums, the row is asked for.
#include <algorithm>
#include <cmath>

#include "engine/sample/sampler.h"
#include "engine/sample/token_bits.h"

namespace nibble {
namespace {

/// Several times the error of rounding in a sum of 2^20 doubles.
constexpr double kSumSlack = 1e-9;
/// Several times the relative error of std::exp.
constexpr double kExpSlack = 1e-12;
/// Temperatures whose masses are trusted: others leave the range of F32.
constexpr double kTemperatureMin = 1e-3;
constexpr double kTemperatureMax = 1e3;

/// True if the parameters can only lower logits. NaN cannot.
bool penalties_lower(const SamplingParams& params) {
  return params.repetition_penalty >= 1.0 && params.presence_penalty >= 0.0 &&
         params.frequency_penalty >= 0.0;
}

/// True if logits are sampled as they are.
bool plain(const SamplingParams& params, std::span<const uint32_t> mask) {
  return mask.empty() && params.logit_bias.empty() && params.repetition_penalty == 1.0 &&
         params.presence_penalty == 0.0 && params.frequency_penalty == 0.0;
}

}  // namespace

/// The bounds of the sum of the weights of all candidates of the row.
struct Sampler::MassBounds {
  double low = 0.0;
  double high = 0.0;
  bool closed = false;  // candidates_ are all of them that are still in play
};

RowDraw Sampler::draw_of(const SamplingParams& params, uint64_t position) {
  const double u = uniform_of(params, position);
  return {.temperature =
              static_cast<float>(std::clamp(params.temperature, kTemperatureMin, kTemperatureMax)),
          .u = std::min(static_cast<float>(u), 1.0F - 0x1p-24F)};
}

std::optional<Result<SampledToken>> Sampler::sample(const ShortList& list,
                                                    const SamplingParams& params,
                                                    const TokenHistory& history, uint64_t position,
                                                    std::span<const uint32_t> mask) {
  CHECK(list.tokens.size() == list.logits.size(), "tokens ", list.tokens.size(), ", logits ",
        list.logits.size());
  CHECK(mask.empty() || mask.size() == sampleable_.size(), "mask words ", mask.size());
  if (!list.sound) return Result<SampledToken>(not_finite_error());
  if (params.wants_logprobs() || gather(list, params, mask) == Known::no) return std::nullopt;
  apply_bias_and_penalties(params, history);
  const std::optional<int32_t> token = draw(list, params, position, mask);
  if (!token) return std::nullopt;
  return Result<SampledToken>(SampledToken{.token = *token, .logprobs = {}});
}

/// no: a logit that is not listed may have risen, or no listed token is allowed.
Sampler::Known Sampler::gather(const ShortList& list, const SamplingParams& params,
                               std::span<const uint32_t> mask) {
  const auto allowed = [&](int32_t token) {
    return has_token(sampleable_, token) && (mask.empty() || has_token(mask, token));
  };
  candidates_.clear();
  size_t count = list.tokens.size();
  if (plain(params, mask)) {  // then the first ones are the best
    const size_t kept = params.greedy() ? 1 : static_cast<size_t>(std::max(params.top_k, 0));
    if (kept > 0) count = std::min(count, kept);
    for (size_t i = 0; i < count; ++i)
      candidates_.push_back(
          {.logit = static_cast<double>(list.logits[i]), .token = list.tokens[i]});
    return count > 0 ? Known::yes : Known::no;
  }
  for (size_t i = 0; i < count; ++i)
    if (allowed(list.tokens[i])) add_candidate(static_cast<double>(list.logits[i]), list.tokens[i]);
  if (candidates_.empty()) return Known::no;
  if (list.all) return Known::yes;
  if (!penalties_lower(params)) return Known::no;
  for (const LogitBias& entry : params.logit_bias) {
    const bool lowers = entry.bias <= 0.0;  // false for NaN
    if (lowers || slot_of(entry.token) >= 0) continue;
    if (entry.token >= 0 && entry.token < vocab_rows_ && allowed(entry.token)) return Known::no;
  }
  return Known::yes;
}

/// Candidates that may rank after tokens that are not listed are dropped; their mass counts.
std::optional<int32_t> Sampler::draw(const ShortList& list, const SamplingParams& params,
                                     uint64_t position, std::span<const uint32_t> mask) {
  if (!std::ranges::is_sorted(candidates_, better)) std::ranges::sort(candidates_, better);
  const Candidate last = {.logit = static_cast<double>(list.logits.back()),
                          .token = list.tokens.back()};
  const auto behind = std::ranges::find_if(
      candidates_, [&](const Candidate& c) { return !list.all && better(last, c); });
  const Candidate best = candidates_.front();
  if (behind == candidates_.begin() || !std::isfinite(best.logit)) return std::nullopt;
  if (params.greedy()) return best.token;

  const auto weight = [&](double logit) {
    return std::exp((logit - best.logit) / params.temperature);
  };
  const auto in_order = static_cast<size_t>(behind - candidates_.begin());
  const bool cut = params.top_k > 0 && static_cast<size_t>(params.top_k) <= in_order;
  if (cut) candidates_.resize(static_cast<size_t>(params.top_k));
  double listed = 0.0;
  for (Candidate& c : candidates_) listed += c.weight = weight(c.logit);
  if (!cut) candidates_.resize(in_order);
  if (params.min_p > 0.0)
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < params.min_p; });
  const bool closed = list.all || cut || weight(last.logit) < params.min_p * (1.0 - kExpSlack);
  if (!closed && (params.top_k > 0 || params.min_p > 0.0)) return std::nullopt;

  const double u = uniform_of(params, position);
  if (closed) {
    if (params.top_p < 1.0 && keep_nucleus(params.top_p, closed_mass()) == Known::no)
      return std::nullopt;
  } else {
    const double temperature = params.temperature;
    const bool trusted = temperature >= kTemperatureMin && temperature <= kTemperatureMax;
    if (!trusted || !std::isfinite(list.logits[0])) return std::nullopt;
    const bool raw = plain(params, mask);
    if (params.top_p >= 1.0) return raw ? pick_drawn(list, temperature, u) : std::nullopt;
    const double scale = weight(static_cast<double>(list.logits[0]));
    const double rest = static_cast<double>(list.rest);
    const double error = mass_error(rest);
    const MassBounds total = {.low = listed + (raw ? scale * std::max(rest - error, 0.0) : 0.0),
                              .high = listed + scale * (rest + error)};
    if (keep_nucleus(params.top_p, total) == Known::no) return std::nullopt;
  }
  std::ranges::sort(candidates_, {}, &Candidate::token);
  return pick(u);
}

Sampler::MassBounds Sampler::closed_mass() const {
  double sum = 0.0;
  for (const Candidate& c : candidates_) sum += c.weight;
  return {.low = sum, .high = sum, .closed = true};
}

/// keep_nucleus() of candidates that are sorted, the best first.
Sampler::Known Sampler::keep_nucleus(double top_p, const MassBounds& total) {
  const double low = top_p * total.low - kSumSlack * total.high;
  const double high = top_p * total.high + kSumSlack * total.high;
  double before = 0.0;
  size_t kept = 0;
  while (kept < candidates_.size() && (kept == 0 || before < low))
    before += candidates_[kept++].weight;
  if (kept == candidates_.size() && total.closed) return Known::yes;
  candidates_.resize(kept);
  return before > high ? Known::yes : Known::no;
}

/// Among the logits around the draw, if it is nowhere near the border of two tokens.
std::optional<int32_t> Sampler::pick_drawn(const ShortList& list, double temperature,
                                           double u) const {
  const double total = static_cast<double>(list.total);
  const double slack = 2.0 * mass_error(total) + kSumSlack * total;
  const double target = u * total;
  double cumulative = static_cast<double>(list.before);
  if (list.drawn_begin > 0 && cumulative + slack > target) return std::nullopt;
  for (size_t i = 0; i < list.drawn.size(); ++i) {
    const int32_t token = list.drawn_begin + static_cast<int32_t>(i);
    if (!has_token(sampleable_, token)) continue;
    const double weight = std::exp(
        (static_cast<double>(list.drawn[i]) - static_cast<double>(list.logits[0])) / temperature);
    if (cumulative + weight <= target + slack) {
      cumulative += weight;
      if (cumulative >= target - slack) return std::nullopt;
      continue;
    }
    return token;
  }
  return std::nullopt;
}

}  // namespace nibble
