// Scripts that complete the program's verbs, options and values in a shell, from the tables of the
// verbs. They are text: nothing is installed here.
#pragma once

#include <string>
#include <string_view>

namespace nibble {

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace nibble
