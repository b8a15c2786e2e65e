// Folders: what one is called, and where a user's own files of the program are.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace nibble {

/// The last part of a path as a name: "models/tiny/", or "." inside it, is "tiny".
std::string folder_name(const std::filesystem::path& path);

/// `nibble` in the folder that the environment's `variable` names (if that is absolute), else in
/// `fallback` of the home folder: user_folder("XDG_CACHE_HOME", ".cache"), as the XDG base
/// directory specification has it. Empty: neither is known.
std::filesystem::path user_folder(const char* variable, std::string_view fallback);

}  // namespace nibble
