// SlowConstraint: a constraint whose masks may take long. They are made by other threads, and a
// sequence whose masks are not there in time sits out passes, so that no other sequence waits for
// them.
#pragma once

#include "base/token_constraint.h"

namespace nibble {

class SlowConstraint : public TokenConstraint {
 public:
  enum class Next : uint8_t {
    ready,   // mask() of the accepted tokens and of each prefix of the drafted ones takes no time
    soon,    // they were begun less than 2 ms ago; most take less than a millisecond
    making,  // they are being made, and waiting for them is not worth it
  };
  /// Looks for the masks after the accepted tokens and after each prefix of `drafted`, and begins
  /// to make them if they are not there. Never waits. Until it says ready, nothing but next(),
  /// find_forced() and drafts() may be called.
  virtual Next next(std::span<const int32_t> drafted) = 0;

  /// Looks for the tokens that forced(most) gives and the masks around them, as next() does for
  /// drafts that are known.
  virtual Next find_forced(size_t most) {
    static_cast<void>(most);
    return Next::ready;
  }

  /// alone: masks take long, and drafts need one each, so there should be none.
  enum class Drafts : uint8_t { taken, alone };
  virtual Drafts drafts() const = 0;
};

}  // namespace nibble
