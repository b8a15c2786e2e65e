// The report of `serve --dry-run`: one line for each option that was given, saying what it did.
// Defaults are not listed.
#pragma once

#include <string>

#include "cli/verb.h"

namespace nibble {

/// A line for each option that flag, environment or file gives, in the order of the tables. Keys
/// are not shown.
std::string flag_report(const Verb& verb, const Arguments& arguments);

}  // namespace nibble
