// Words and environment as paths.
#include "cli/folders.h"

#include <cstdlib>

namespace nibble {

namespace fs = std::filesystem;

std::string folder_name(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

fs::path user_folder(const char* variable, std::string_view fallback) {
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value == '/' ? fs::path(value) : fs::path();
  };
  if (const auto given = absolute(variable); !given.empty()) return given / "nibble";
  const auto home = absolute("HOME");
  return home.empty() ? home : home / fallback / "nibble";
}

}  // namespace nibble
