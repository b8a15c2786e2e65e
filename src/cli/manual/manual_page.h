// The manual page nibble(1) in the man macros, from the tables of the verbs.
#pragma once

#include <string>

namespace nibble {

std::string manual_page();

}  // namespace nibble
