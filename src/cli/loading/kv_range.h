// The line at start that says whether keys and values of a model can leave the range of FP8.
#pragma once

#include <string>

#include "model/pages/kv_bounds.h"

namespace nibble {

/// One line with its line break, for people.
std::string kv_range_notice(const KvBounds& bounds);

}  // namespace nibble
