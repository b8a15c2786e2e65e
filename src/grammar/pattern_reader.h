// Reads the regular expressions of JSON Schema: those of ECMA-262, which match a part of a text.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/language.h"

namespace nibble {

/// The texts in which `ecma` matches somewhere, as a pattern of whole texts. Errors:
/// invalid_argument, for what no automaton can say (back-references, look-around other than
/// look-ahead at the beginning, anchors inside), and what is no regular expression.
Result<Pattern> read_pattern(std::string_view ecma);

/// The strings that a format of JSON Schema allows, or a subset of them; nullptr for a format that
/// is not known. Formats that say nothing about the text give every string.
Result<Pattern> format_pattern(std::string_view format);

}  // namespace nibble
