// Files as the checkpoint and the command line need them: positioned reads with exact lengths,
// whole small files with a limit, and writes that never leave half a file under the final name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

/// An open file descriptor, closed at the end. Reads are positioned, so many threads may share it.
class File {
 public:
  static Result<File> open_read(const std::filesystem::path& path);
  /// Fails if the file exists (invalid_argument): nothing is overwritten by accident.
  static Result<File> create_new(const std::filesystem::path& path);
  /// Opens a file to continue writing: its contents stay; it is made if it is missing.
  static Result<File> open_write(const std::filesystem::path& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::filesystem::path& path() const { return path_; }
  /// System calls that are not here need it; it stays this object's.
  int descriptor() const { return descriptor_; }
  Result<uint64_t> size() const;
  /// Fills `out` from `offset`; a short file is `corrupt`.
  Result<void> read_at(std::span<std::byte> out, uint64_t offset) const;
  Result<void> write_at(std::span<const std::byte> data, uint64_t offset);
  /// Gives it this size and reserves the space, so that a full disk is found before the work
  /// (no_space).
  Result<void> reserve(uint64_t bytes);
  /// fsync.
  Result<void> sync();

 private:
  File(int descriptor, std::filesystem::path path);
  int descriptor_ = -1;
  std::filesystem::path path_;
};

/// The whole file. Errors: not_found, io, corrupt when larger than bytes_max.
Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t bytes_max);

/// Writes `path` through a temporary file beside it, fsync and rename. Replaces an existing file.
Result<void> write_file_atomically(const std::filesystem::path& path, std::string_view data);

/// Flushes the folder itself, so that names made or changed in it survive a power cut.
Result<void> sync_folder(const std::filesystem::path& folder);

/// Error of the last failed system call on `path`: names errno; ENOSPC is no_space.
Error system_error(std::string_view action, const std::filesystem::path& path);

}  // namespace nibble
