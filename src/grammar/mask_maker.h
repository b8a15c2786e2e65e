// MaskMaker: xgrammar's matcher, and the masks after what it has accepted and after drafts that
// follow. Which tokens are the grammar's to judge is for its caller to say
// (grammar_constraint.cc). Private to this module.
#pragma once

#include <xgrammar/matcher.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "grammar/compiled_grammar.h"

namespace nibble {

/// A thread that makes masks holds the maker too, so it outlives a sequence that is cancelled
/// meanwhile.
class MaskMaker : public std::enable_shared_from_this<MaskMaker> {
 public:
  struct Mask {
    enum class Kind : uint8_t {
      absent,   // not made
      open,     // every token may follow, or the drafts before it cannot be accepted
      limited,  // one bit per token in `words`
    };
    Kind kind = Kind::absent;
    std::vector<int32_t> words;
  };
  enum class State : uint8_t { idle, begun };

  explicit MaskMaker(std::shared_ptr<const Grammar> of)
      : grammar(std::move(of)), matcher(grammar->compiled) {}

  /// begun: another thread uses the matcher, and nothing but state() and age() may be called.
  State state() const { return state_; }
  /// The time since begin() was called last.
  std::chrono::nanoseconds age() const { return std::chrono::steady_clock::now() - begun_at_; }

  /// True if the masks after each prefix of `fed` are there.
  bool has_all(std::span<const int32_t> fed) const;
  /// Makes those masks in another thread.
  void begin(std::vector<int32_t> fed);
  /// Finds or makes the mask after all of `fed`, which the matcher has not accepted.
  const Mask& mask(std::span<const int32_t> fed);
  /// To be called whenever the matcher has accepted or taken back a token.
  void forget() { masks_.clear(); }

  const std::shared_ptr<const Grammar> grammar;
  xgrammar::GrammarMatcher matcher;

 private:
  enum class Wanted : uint8_t { all, last };
  void make(Wanted wanted);
  void fill(Mask& mask);

  std::atomic<State> state_ = State::idle;
  std::chrono::steady_clock::time_point begun_at_;
  std::vector<int32_t> fed_;
  std::vector<Mask> masks_;  // after each prefix of fed_, from none of it to all
};

}  // namespace nibble
