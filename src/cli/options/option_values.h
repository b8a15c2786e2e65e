// The kinds of values that a placeholder of the tables stands for, for completion in a shell.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cli/verb.h"

namespace nibble {

enum class ValueKind : uint8_t {
  none,     // a switch
  words,    // one of some words
  files,    // a path
  folders,  // the path of a folder
  other,    // a number, a name, an address
};

/// The kind of a placeholder such as "N", "exact|fast", "FILE" or "DIR".
ValueKind value_kind(std::string_view placeholder);

/// The words that stand in the placeholder themselves: {"exact", "fast"}, {"auto"} of
/// "N|auto[:SEQS]".
std::vector<std::string_view> placeholder_words(std::string_view placeholder);

/// The placeholders of a verb's positionals: {"SRC", "DST"} of "SRC DST", without brackets.
std::vector<std::string_view> positional_words(const Verb& verb);

/// The help of an option up to its first clause, for one line of a list.
std::string_view short_help(std::string_view help);

}  // namespace nibble
