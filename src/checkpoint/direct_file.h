// DirectFile: positioned reads that leave the page cache alone (O_DIRECT), for weights that are
// read once from a disk. Linux only, and not every file system has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace nibble {

/// Many threads may share it; each has an aligned buffer of its own that blocks pass through.
class DirectFile {
 public:
  /// Reads the first block to see that it can. Errors: unsupported where the file system refuses;
  /// those of opening.
  static Result<DirectFile> open(const std::filesystem::path& path);

  DirectFile(DirectFile&& other) noexcept;
  DirectFile& operator=(DirectFile&& other) noexcept;
  ~DirectFile();

  /// Fills `out` from `offset`; neither need be aligned. A short file is `corrupt`.
  Result<void> read_at(std::span<std::byte> out, uint64_t offset) const;

 private:
  DirectFile(int descriptor, std::filesystem::path path);
  Result<size_t> read_blocks(std::span<std::byte> blocks, uint64_t offset) const;
  int descriptor_ = -1;
  std::filesystem::path path_;
};

}  // namespace nibble
