// The work of compiling a grammar, and whether its texts come to an end, both known before it is
// compiled. Private to this module: it looks inside xgrammar's automata.
#pragma once

#include <xgrammar/grammar.h>

#include <array>
#include <cstdint>

namespace nibble {

enum class Ending : uint8_t { possible, impossible };

struct GrammarWork {
  /// impossible: no text is of the grammar, or only texts without an end, as of "root ::= root".
  Ending ending = Ending::possible;
  /// The compiler looks, for every state of the automata that reads a character, at every token
  /// that begins with such a character. Time and memory grow with this count, and it is the same
  /// at all times.
  uint64_t looks = 0;
};

/// `tokens_by_first`: how many tokens of the vocabulary begin with each byte.
GrammarWork work_of(const xgrammar::Grammar& grammar,
                    const std::array<uint32_t, 256>& tokens_by_first);

}  // namespace nibble
