// LineHistory: the lines that were typed before, kept in a file that only their owner reads, in the
// format of libedit, so that other programs read it too.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

class LineHistory {
 public:
  static constexpr size_t kLinesMax = 1000;

  /// Oldest first. A file that is not there, or of another format, gives none.
  static LineHistory read(const std::filesystem::path& file);
  /// Makes the file's folder too.
  Result<void> write(const std::filesystem::path& file) const;

  /// An empty line, or the last one again, is not kept.
  void add(std::string_view line);
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

}  // namespace nibble
