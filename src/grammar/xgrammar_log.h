// What xgrammar says of a compilation. It warns where it leaves a part of a schema out.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace nibble {

/// Warnings of this thread since the last call.
std::vector<std::string> take_xgrammar_warnings();

}  // namespace nibble
