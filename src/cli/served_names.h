// The names a model answers to: --served-model-name, else its folder's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/verb.h"

namespace nibble {

inline constexpr Option kServedNamesOption = {
    "served-model-name", "NAME", "", "name of the model in the API (several: separated by commas)"};

/// The non-empty items between commas.
std::vector<std::string> split_list(std::string_view text);

/// Those of the flag, else the name of the folder, the first positional, and that word itself.
std::vector<std::string> served_names(const Arguments& arguments);

}  // namespace nibble
