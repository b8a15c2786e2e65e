// FileWatch: whether files have changed since the last look, by their inode, size and time; reads
// nothing.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace nibble {

class FileWatch {
 public:
  explicit FileWatch(std::vector<std::filesystem::path> paths) : paths_(std::move(paths)) {}
  /// True at the first look. A file that goes or comes has changed.
  bool changed();

 private:
  using Stamp = std::array<uint64_t, 4>;  // zeros: there is none
  std::vector<std::filesystem::path> paths_;
  std::vector<Stamp> seen_;
};

}  // namespace nibble
