// Every state is kept, so that a rollback is a truncation.
#include "engine/sample/thinking_budget.h"

#include "base/check.h"
#include "engine/planted_bug.h"
#include "engine/sample/token_bits.h"

namespace nibble {

ThinkingBudget::ThinkingBudget(Options options) : options_(std::move(options)) {
  CHECK(!options_.closing.empty(), "a closing sequence needs a token");
  CHECK(options_.tokens_max >= 0, "a budget of ", options_.tokens_max);
  CHECK(options_.position_max >= 0, "a position of ", options_.position_max);
  states_.push_back({.inside = options_.start == Start::inside});
}

ThinkingBudget::State ThinkingBudget::after(State state, int32_t token) const {
  const bool over = spent(state);
  if (state.generated < options_.position_max) ++state.generated;
  if (!state.inside) {
    state.inside = token == options_.begin;
    return state;
  }
  if (token == options_.closing.back())
    return {.inside = false, .spent = state.spent, .generated = state.generated};
  if (!over)
    ++state.spent;
  else if (token == options_.closing[state.closing_at])
    ++state.closing_at;
  return state;
}

TokenConstraint::MaskState ThinkingBudget::mask(std::span<const int32_t> drafted,
                                                std::span<uint32_t> bits) {
  State state = states_.back();
  if (!planted(kBugBudgetMissesDrafts))
    for (const int32_t token : drafted) state = after(state, token);
  if (state.inside && spent(state)) {
    forbid_all_but(bits, options_.closing[state.closing_at]);
    return MaskState::limited;
  }
  if (state.inside || state.spent < options_.tokens_max || !options_.begin) return MaskState::open;
  forbid_token(bits, *options_.begin);
  return MaskState::limited;
}

std::optional<size_t> ThinkingBudget::accept(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) states_.push_back(after(states_.back(), token));
  return std::nullopt;
}

void ThinkingBudget::rollback(size_t count) {
  CHECK(count < states_.size(), "rollback ", count, " of ", states_.size() - 1);
  states_.resize(states_.size() - count);
}

}  // namespace nibble
