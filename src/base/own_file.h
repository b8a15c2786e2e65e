// A file that this program may write to: one that it made itself, not one that a link leads to.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace nibble {

/// A descriptor to read and write a regular file, which is made if it is missing. Errors: a
/// symbolic link or a special file (invalid_argument), since it may lead to a file of somebody
/// else; links on the way to the folder are followed.
Result<int> open_own_file(const std::filesystem::path& path);

}  // namespace nibble
