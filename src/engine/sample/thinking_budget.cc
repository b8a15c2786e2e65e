// Every state is kept, so that a rollback is a truncation.
#include "engine/sample/thinking_budget.h"

#include "base/check.h"
#include "base/planted_bug.h"
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
  if (const auto only = only_token(state)) {
    forbid_all_but(bits, *only);
    return MaskState::limited;
  }
  if (!forbids_begin(state)) return MaskState::open;
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

size_t ThinkingBudget::fitting(std::span<const int32_t> drafted) {
  State state = states_.back();
  for (size_t i = 0; i < drafted.size(); ++i) {
    const auto only = only_token(state);
    if (only && drafted[i] != *only) return i;
    if (forbids_begin(state) && drafted[i] == *options_.begin) return i;
    state = after(state, drafted[i]);
  }
  return drafted.size();
}

std::vector<int32_t> ThinkingBudget::forced(size_t most) {
  std::vector<int32_t> tokens;
  State state = states_.back();
  for (auto only = only_token(state); only && tokens.size() < most; only = only_token(state)) {
    tokens.push_back(*only);
    state = after(state, *only);
  }
  return tokens;
}

}  // namespace nibble
