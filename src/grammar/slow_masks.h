// Grammars whose masks take long. Private to this module and its tests.
#pragma once

#include "grammar/grammar_compiler.h"

namespace nibble {

/// From now on other threads make the masks of all constraints of the grammar
/// (base/slow_constraint.h), as they do after one that took long.
void make_masks_ahead(const Grammar& grammar);

}  // namespace nibble
