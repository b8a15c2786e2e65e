// PrefixStore: pinned prefixes on disk, so that they survive a restart. A folder with one file per
// prefix, written whole or absent. Files of another format version, model or layout, and damaged
// ones, are deleted and reported, never used. It knows bytes, not the tree (prefix_cache.h).
//
// A file, little-endian: 16 words of 8 bytes (magic, version, fingerprint x 4, salt, tokens, media
// spans, page bytes, state bytes, checksum of the rest, three zeros, checksum of the words before),
// then token ids (4 bytes each), media spans (begin, count: 4 bytes; digest: 16), pages, state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/cache/prefix_cache.h"

namespace nibble {

inline constexpr uint64_t kPrefixFileVersion = 1;
inline constexpr size_t kPrefixHeaderBytes = 128;

struct PrefixStoreOptions {
  /// Names everything the bytes depend on: weights, quantization, backend, layout, precision.
  std::array<uint64_t, 4> fingerprint = {};
  int64_t page_bytes = 0;        // Backend::page_bytes()
  int64_t state_slot_bytes = 0;  // Backend::state_slot_bytes()
  uint64_t bytes_max = 0;        // size of all files together
};

/// Sizes of one file, checked against each other and the file's length.
struct PrefixFileHeader {
  uint64_t salt = 0;
  uint64_t tokens = 0;
  uint64_t media = 0;
  uint64_t page_bytes = 0;  // size of all pages
  uint64_t state_bytes = 0;
  uint64_t checksum = 0;
  uint64_t body_bytes() const { return tokens * 4 + media * 24 + page_bytes + state_bytes; }
};

/// The first kPrefixHeaderBytes of a file of `file_bytes`. Errors: corrupt; unsupported (another
/// version, fingerprint or layout).
Result<PrefixFileHeader> parse_prefix_header(std::span<const std::byte> bytes, uint64_t file_bytes,
                                             const PrefixStoreOptions& options);
/// Parses the bytes that follow the header. Errors: corrupt.
Result<PrefixBytes> parse_prefix_body(const PrefixFileHeader& header,
                                      std::span<const std::byte> body);

class PrefixStore {
 public:
  struct Entry {
    std::filesystem::path file;
    uint64_t salt = 0;
    uint64_t tokens = 0;
    uint64_t bytes = 0;
  };
  enum class Reason : uint8_t { stale, corrupt, over_limit };
  struct Dropped {
    std::filesystem::path file;
    Reason reason = Reason::corrupt;
    std::string message;
  };

  /// Makes the folder if need be, reads the headers in it and deletes what is of no use. Errors:
  /// io, no_space.
  static Result<PrefixStore> open(const std::filesystem::path& folder,
                                  const PrefixStoreOptions& options);
  PrefixStore(PrefixStore&&) noexcept;
  PrefixStore& operator=(PrefixStore&&) noexcept;
  ~PrefixStore();

  // Any thread may call these; save() and load() take as long as the disk does.

  /// Writes the prefix, or replaces its file. The oldest others go if bytes_max asks for it.
  /// Errors: no_space (larger than bytes_max, or the disk is full), io.
  Result<void> save(const PrefixBytes& prefix);
  /// Oldest first.
  std::vector<Entry> entries() const;
  /// Reads and verifies every byte. A damaged file is deleted. Errors: not_found, io, corrupt,
  /// unsupported.
  Result<PrefixBytes> load(const Entry& entry);
  /// Unpinned: the file goes.
  void remove(const Entry& entry);
  /// All that was deleted without being asked for, since open.
  std::vector<Dropped> dropped() const;

 private:
  struct State;
  explicit PrefixStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace nibble
