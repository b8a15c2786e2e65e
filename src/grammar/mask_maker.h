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
  /// The time since begin() or begin_forced() was called last.
  std::chrono::nanoseconds age() const { return std::chrono::steady_clock::now() - begun_at_; }

  /// True if the masks after each prefix of `fed` are there.
  bool has_all(std::span<const int32_t> fed) const;
  /// Makes those masks in another thread.
  void begin(std::vector<int32_t> fed);
  /// True if forced() is there, and the masks after each prefix of it.
  bool has_forced(size_t most) const { return forced_most_ >= most; }
  /// Makes those in another thread: the tokens, `most` at most, that the grammar forces. The text
  /// that must come is divided as the model is used to write it. Its last token may turn out
  /// otherwise, joined with what follows, unless it is the only one that is allowed.
  void begin_forced(size_t most);
  std::span<const int32_t> forced() const { return forced_; }
  /// The number of first ones of `fed` that the matcher would accept.
  size_t fitting(std::span<const int32_t> fed);
  /// Finds or makes the mask after all of `fed`, which the matcher has not accepted.
  const Mask& mask(std::span<const int32_t> fed);
  /// To be called whenever the matcher has accepted or taken back a token.
  void forget() {
    masks_.clear();
    forced_.clear();
    forced_most_ = 0;
  }

  const std::shared_ptr<const Grammar> grammar;
  xgrammar::GrammarMatcher matcher;

 private:
  enum class Wanted : uint8_t { all, last };
  /// Calls it in another thread.
  void post(void (MaskMaker::*work)());
  void make_all() { make(Wanted::all); }
  void make(Wanted wanted);
  void make_forced();
  /// Accepts it and makes the mask that follows; false: the grammar refuses it.
  bool feed(int32_t token);
  std::vector<int32_t> forced_text();
  void fill(Mask& mask);

  std::atomic<State> state_ = State::idle;
  std::chrono::steady_clock::time_point begun_at_;
  std::vector<int32_t> fed_;
  std::vector<Mask> masks_;  // after each prefix of fed_, from none of it to all
  std::vector<int32_t> forced_;
  size_t forced_most_ = 0;  // as many were looked for; 0: none yet
};

}  // namespace nibble
