// Grammars whose masks take long. Private to this module's tests.
#pragma once

#include <functional>

#include "grammar/grammar_compiler.h"

namespace nibble {

/// `call` is called before masks of the grammar are made, by the thread that makes them, which may
/// so be held up. To be set before a constraint of the grammar is asked for anything.
void before_masks(const Grammar& grammar, std::function<void()> call);

/// From now on the grammar is one that had a mask which took long.
void mark_slow(const Grammar& grammar);

}  // namespace nibble
