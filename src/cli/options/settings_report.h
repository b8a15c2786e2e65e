// The report of --print-config: each option of a verb with its value and where that comes from, in
// the form of the configuration file. It reads nothing; secrets are hidden.
#pragma once

#include <string>

#include "cli/verb.h"

namespace nibble {

/// "[serve]", then "port = 9000  # --port, before NIBBLE_PORT" for each option of the table and for
/// each foreign flag that is given. An option without a value, or with a secret one, is a comment.
/// parse_config takes the text, and finds the values in it.
std::string settings_report(const Verb& verb, const Arguments& arguments);

}  // namespace nibble
