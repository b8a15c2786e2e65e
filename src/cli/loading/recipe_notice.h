// A notice from a checkpoint's own report about its recipe, for verbs that run it.
#pragma once

#include <filesystem>
#include <string>

namespace nibble {

/// "recipe w4a4: free text only ...\n" for a checkpoint that this program made with a recipe that
/// is not fit for everything; else empty. A missing or odd report is no error.
std::string recipe_notice(const std::filesystem::path& folder);

}  // namespace nibble
