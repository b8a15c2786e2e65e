// KvPool: which KV pages are free and which are taken. Ids only; the bytes belong to the backend.
// A page holds kPageTokens tokens of all attention layers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/batch.h"

namespace nibble {

class KvPool {
 public:
  explicit KvPool(int32_t pages);

  int32_t size() const { return static_cast<int32_t>(taken_.size()); }
  int32_t free_count() const { return static_cast<int32_t>(free_.size()); }

  /// `count` pages, or nothing if fewer are free.
  std::optional<std::vector<int32_t>> allocate(int32_t count);
  /// Gives pages back. Each must be taken.
  void release(std::span<const int32_t> pages);

  /// CHECKs that every page is either free once or taken, and that `in_use` (all pages of all
  /// sequences, any order) is exactly the taken ones.
  void check_integrity(std::span<const int32_t> in_use) const;

  /// Pages that hold `tokens` tokens.
  static int32_t pages_for(int64_t tokens) {
    return static_cast<int32_t>((tokens + kPageTokens - 1) / kPageTokens);
  }

 private:
  std::vector<int32_t> free_;  // last in, first out
  std::vector<uint8_t> taken_;
};

}  // namespace nibble
