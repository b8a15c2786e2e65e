// Whether texts of a compiled grammar come to an end. Private to this module: it looks inside
// xgrammar's automata.
#pragma once

#include <xgrammar/grammar.h>

namespace nibble {

enum class Ending : uint8_t { possible, impossible };

/// impossible: no text is of the grammar, or only texts without an end, as of "root ::= root".
Ending ending_of(const xgrammar::Grammar& compiled);

}  // namespace nibble
