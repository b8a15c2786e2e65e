// WorkFolder: where a benchmark writes what it throws away.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "base/concat.h"

namespace nibble {

/// A new name in `parent` that belongs to this process; what is there is removed with the object.
class WorkFolder {
 public:
  explicit WorkFolder(const std::filesystem::path& parent)
      : path_(parent / concat(".nibble-bench-", ::getpid())) {}
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  ~WorkFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace nibble
