// The commit that this program was built from.
#pragma once

#include <string_view>

namespace nibble {

/// Twelve digits, with "+" behind them if files of the work tree differed; empty: not known, as in
/// a build from an archive. Its source is made by cmake/commit.cmake.
std::string_view source_commit();

}  // namespace nibble
