// docs/options.md: the options of all verbs as tables, from the tables of the verbs.
#pragma once

#include <string>

namespace nibble {

std::string options_page();

}  // namespace nibble
