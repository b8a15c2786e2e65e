// The writing half of a prefix file's format, for PrefixStore; the reading half is in its header,
// where the fuzz program finds it.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "engine/cache/prefix_store.h"

namespace nibble {

/// Finds damage, not malice. The pieces count: "ab" + "c" is not "abc".
class Checksum {
 public:
  void add(std::span<const std::byte> bytes);
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

std::vector<std::byte> prefix_media_bytes(std::span<const MediaSpan> media);
std::array<std::byte, kPrefixHeaderBytes> prefix_header_bytes(const PrefixFileHeader& header,
                                                              const PrefixStoreOptions& options);

}  // namespace nibble
