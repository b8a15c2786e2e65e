// A weight file being written: new, or gone on with after a kill, which base/file.h does not know.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace nibble {

enum class ShardFileMode : uint8_t { fresh, continued };

class ShardFile {
 public:
  /// fresh: invalid_argument if it exists. continued: made if it is missing.
  static Result<ShardFile> open(const std::filesystem::path& path, ShardFileMode mode);

  ShardFile(ShardFile&& other) noexcept;
  ShardFile& operator=(ShardFile&& other) noexcept;
  ~ShardFile();

  /// Gives it this size and reserves the space, so that a full disk is found now (no_space).
  Result<void> reserve(uint64_t bytes);
  /// From any thread.
  Result<void> write_at(std::span<const std::byte> data, uint64_t offset);
  /// The data is on the disk when it returns.
  Result<void> sync();

 private:
  ShardFile(int descriptor, std::filesystem::path path)
      : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_ = -1;
  std::filesystem::path path_;
};

}  // namespace nibble
