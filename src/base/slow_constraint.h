// SlowConstraint: a constraint whose masks may take long. They are then made elsewhere, and the
// sequence sits out passes until its next one is there, so that no other sequence waits for it.
#pragma once

#include "base/token_constraint.h"

namespace nibble {

class SlowConstraint : public TokenConstraint {
 public:
  enum class Next : uint8_t {
    ready,   // mask() of the accepted tokens takes no time worth a thought
    making,  // it is being made elsewhere; nothing but next() may be called until it is ready
  };
  /// Looks for the next mask, and begins to make it if that takes long. Never waits.
  virtual Next next() = 0;

  /// alone: drafts would need masks that take long, one for each, so there should be none.
  enum class Drafts : uint8_t { taken, alone };
  virtual Drafts drafts() const = 0;
};

}  // namespace nibble
