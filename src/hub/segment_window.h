// A file that several connections fetch at once and that is still written from front to back: what
// stands on the disk is always a true beginning of it, so any client can go on, after any end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/file.h"
#include "hub/blob_hash.h"

namespace nibble {

/// Bytes [begin, end) of the file, in the hands of one connection. The first `received` are there.
struct FileSegment {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t received = 0;
  uint64_t position() const { return begin + received; }
  bool complete() const { return position() >= end; }
};

/// Shared by the connections of one file. Bytes of the foremost segment go to the file as they
/// come; those of later ones wait in memory, never more than `window_bytes` ahead.
class SegmentWindow {
 public:
  struct Sizes {
    uint64_t file_bytes = 0;
    uint64_t written = 0;  // bytes of the file that are there and that `hasher` has seen
    uint64_t segment_bytes = 0;
    uint64_t window_bytes = 0;
  };
  SegmentWindow(File& file, BlobHasher& hasher, const Sizes& sizes);

  /// The next segment; waits for room, and until it is known that the server takes ranges. Nothing:
  /// all are given out, or fail() was called.
  std::optional<FileSegment> take();
  /// The server takes ranges, or (ranges_absent) it sends whole files only: then `segment` grows to
  /// the end of the file, and no other is given out.
  void ranges_work();
  void ranges_absent(FileSegment& segment);
  /// Takes bytes at segment.position(); those past its end are left. Errors: of writing.
  Result<void> add(FileSegment& segment, std::span<const std::byte> bytes);
  /// Ends the work of all; the first error stays.
  void fail(Error error);
  bool failed();
  Result<void> result();
  uint64_t written();

 private:
  enum class Ranges : uint8_t { unknown, asked, work, absent };
  Result<void> write(std::span<const std::byte> bytes);

  File& file_;
  BlobHasher& hasher_;
  Sizes sizes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Ranges ranges_ = Ranges::unknown;
  uint64_t next_begin_;
  std::map<uint64_t, std::vector<std::byte>> waiting_;  // by the begin of their segment
  std::optional<Error> error_;
};

}  // namespace nibble
