// What each given option of a command line did, for `serve --dry-run`. Defaults are not listed.
#pragma once

#include <string>

#include "cli/verb.h"

namespace nibble {

/// A line for each option that flag or environment gives, in the order of the tables. Keys are not
/// shown.
std::string flag_report(const Verb& verb, const Arguments& arguments);

}  // namespace nibble
