// ThinkingBudget: at most so many tokens of thinking, then the thinking is closed by force: the
// only tokens that may follow are those of the closing sequence. An automaton over generated ids;
// what the text spells is no matter.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/token_constraint.h"

namespace nibble {

class ThinkingBudget final : public TokenConstraint {
 public:
  enum class Start : uint8_t { outside, inside };
  struct Options {
    std::optional<int32_t> begin;  // <think>
    std::vector<int32_t> closing;  // forced one by one; the last is </think>, whenever it comes
    int32_t tokens_max = 0;        // tokens of all thinking, without the closing sequence
    /// Thinking is also closed by force from so many generated tokens in all on.
    int32_t position_max = INT32_MAX;
    Start start = Start::inside;  // the state at the end of the prompt
  };
  explicit ThinkingBudget(Options options);

  /// Inside, with the budget spent or the position reached: only the next token of the closing
  /// sequence. Outside, with the budget spent: no <think>.
  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) override;
  std::optional<size_t> accept(std::span<const int32_t> tokens) override;
  void rollback(size_t count) override;
  size_t fitting(std::span<const int32_t> drafted) override;
  /// The rest of the closing sequence.
  std::vector<int32_t> forced(size_t most) override;

 private:
  struct State {
    bool inside = false;
    int32_t spent = 0;
    int32_t generated = 0;    // in all, up to position_max
    uint32_t closing_at = 0;  // tokens of the closing sequence that were forced already
  };
  State after(State state, int32_t token) const;
  /// The one token that may follow; nothing: any but, with the budget spent, <think>.
  std::optional<int32_t> only_token(const State& state) const {
    if (!state.inside || !spent(state)) return std::nullopt;
    return options_.closing[state.closing_at];
  }
  bool forbids_begin(const State& state) const {
    return !state.inside && state.spent >= options_.tokens_max && options_.begin.has_value();
  }
  bool spent(const State& state) const {
    return state.spent >= options_.tokens_max || state.generated >= options_.position_max;
  }

  Options options_;
  std::vector<State> states_;  // the start, then after each accepted token
};

}  // namespace nibble
