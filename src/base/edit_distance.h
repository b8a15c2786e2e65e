// Levenshtein's distance, for advice about misspelt names. Its time is the product of the lengths,
// so callers bound what they compare.
#pragma once

#include <cstddef>
#include <string_view>

namespace nibble {

/// The least number of bytes inserted, deleted or replaced that turns `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace nibble
