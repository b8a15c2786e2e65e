// MappedFile: a file whose bytes are read where the page cache has them, so that nothing is copied
// and processes share them. A file that shrinks or cannot be read while it is mapped is a signal
// (SIGBUS); it is taken here: the process ends with a line that names the file, or, where the owner
// asks for that, goes on with zeros and intact() says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/file.h"
#include "base/result.h"

namespace nibble {

class MappedFile {
 public:
  /// Maps the whole file for reading; reads nothing yet. Errors: those of File::open_read;
  /// no_memory; unsupported for a file system that maps none, and for more than 1,024 files at
  /// once.
  static Result<MappedFile> map(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  /// Reads these bytes of bytes() from the disk if they are not in memory, and enters them into the
  /// page table. Several threads may fetch at once. Errors: corrupt, if the file has shrunk or
  /// cannot be read.
  Result<void> fetch(std::span<const std::byte> part) const;
  /// From now on nothing is read beyond what is asked for: neighbours of a page are of no use.
  void read_at_random();
  /// From now on the process outlives what happens to the file.
  void outlive();
  /// Errors: corrupt, if bytes were lost since, or the file's size or time of change is another
  /// one.
  Result<void> intact() const;

 private:
  struct Guard;  // what the signal handler knows of a mapping
  struct Facts {
    uint64_t bytes = 0;
    int64_t seconds = 0;  // of the last change
    int64_t nanoseconds = 0;
    bool operator==(const Facts&) const = default;
  };
  explicit MappedFile(File file) : file_(std::move(file)) {}
  Result<Facts> facts() const;

  File file_;
  Facts facts_;
  std::span<const std::byte> bytes_;
  Guard* guard_ = nullptr;
};

/// Asks the system to read mapped bytes, and does not wait for them. A hint: errors show later.
void will_need(std::span<const std::byte> bytes);

}  // namespace nibble
