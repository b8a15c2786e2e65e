// The constraints that a request puts on its tokens: the end of thinking, stop strings, a
// structure, no loops.
#include <algorithm>

#include "engine/sample/thinking_budget.h"
#include "server/decode/token_limits.h"
#include "server/request/generation_request.h"

namespace nibble {

namespace {

/// The share of max_tokens that is reserved for the answer: half where it is of no use unless it is
/// whole, a quarter for prose.
constexpr int32_t kStructureShare = 2;
constexpr int32_t kProseShare = 4;
constexpr int32_t kLeastReserve = 4;  // a blank line and two words, where there is room

}  // namespace

int32_t GenerationRequest::reserved_tokens(const ServedModel& served) const {
  if (!served.tags.think_end) return 0;
  if (answer_reserve) return std::min(*answer_reserve, max_tokens);
  if (api == Api::completions) return 0;
  const bool whole = grammar != nullptr || parse_tools != ParseTools::no;
  const int32_t share = max_tokens / (whole ? kStructureShare : kProseShare);
  return std::min(served.policy.answer_reserve,
                  std::max(share, std::min(kLeastReserve, max_tokens / 2)));
}

std::unique_ptr<TokenConstraint> GenerationRequest::thinking_limit(const ServedModel& served,
                                                                   StartIn start) const {
  const int32_t reserve = reserved_tokens(served);
  if (!thinking_budget && reserve == 0) return nullptr;
  ThinkingBudget::Options options{.begin = served.tags.think_begin,
                                  .closing = served.thinking_close,
                                  .tokens_max = thinking_budget.value_or(INT32_MAX),
                                  .start = start == StartIn::reasoning
                                               ? ThinkingBudget::Start::inside
                                               : ThinkingBudget::Start::outside};
  if (reserve > 0) {
    const int32_t room = max_tokens - reserve;  // for thinking and what closes it
    if (room < static_cast<int32_t>(options.closing.size()))
      options.closing = {*served.tags.think_end};
    options.position_max = std::max(0, room - static_cast<int32_t>(options.closing.size()));
  }
  return std::make_unique<ThinkingBudget>(std::move(options));
}

/// The budget first: of two that end at the same token the earlier gives the reason.
std::unique_ptr<TokenConstraint> GenerationRequest::constraint(const ServedModel& served,
                                                               size_t index) const {
  ConstraintChain::Members members;
  const StartIn start = start_of(served, prompts[index / static_cast<size_t>(choices)]);
  if (auto limit = thinking_limit(served, start)) members.push_back(std::move(limit));
  if (!stops.empty())
    members.push_back(std::make_unique<StopStrings>(served.tokenizer, stops, min_tokens));
  if (!allowed_tokens.empty() || !banned_words.empty()) {
    TokenLimits::Options limits{.allowed = allowed_tokens, .banned = banned_words, .exempt = {}};
    if (api != Api::completions) limits.exempt = served.thinking_close;
    if (api != Api::completions && served.tags.think_end)
      limits.exempt.push_back(*served.tags.think_end);
    members.push_back(std::make_unique<TokenLimits>(std::move(limits)));
  }
  if (grammar) {
    const bool thinking = api != Api::completions && start == StartIn::reasoning;
    members.push_back(
        make_grammar_constraint(grammar, thinking ? served.tags.think_end.value_or(-1) : -1));
  }
  if (repetition) members.push_back(std::make_unique<RepetitionStop>(*repetition));
  return chained(std::move(members));
}

}  // namespace nibble
