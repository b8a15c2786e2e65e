// --help=KEYWORD: the options whose name or help has a word.
#pragma once

#include <string>
#include <string_view>

#include "cli/verb.h"

namespace nibble {

/// Rows of the help for what has `keyword` in its name, other name, placeholder or help, in any
/// case; dashes and underscores are the same. Flags of another program stand below with their
/// answers. Errors: invalid_argument if nothing has it, with the nearest name.
Result<std::string> search_options(const Verb& verb, std::string_view keyword);

/// It searches all verbs, each under its name.
Result<std::string> search_all_options(std::string_view keyword);

}  // namespace nibble
