// KvPool: which KV pages are free and how many holders each taken one has. Ids only; the bytes
// belong to the backend. A page holds kPageTokens tokens of all attention layers.
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

  int32_t size() const { return static_cast<int32_t>(references_.size()); }
  int32_t free_count() const { return static_cast<int32_t>(free_.size()); }

  /// `count` pages with one holder each, or nothing if fewer are free.
  std::optional<std::vector<int32_t>> allocate(int32_t count);
  /// One more holder. The page must be taken.
  void retain(int32_t page);
  /// One holder less; the last one gives the page back. Each must be taken.
  void release(int32_t page);
  void release(std::span<const int32_t> pages);
  /// Holders; 0: free.
  int32_t references(int32_t page) const { return references_[index(page)]; }

  /// A page whose only holder would give it up at once if asked. The mark is that holder's to set
  /// and to clear (before it releases); it counts while there is no second holder.
  enum class Reclaim : uint8_t { no, yes };
  void mark(int32_t page, Reclaim reclaim);
  Reclaim marked(int32_t page) const;
  /// Marked pages with one holder.
  int32_t reclaimable_count() const { return reclaimable_count_; }

  /// CHECKs that every page is either free once or taken, and that `in_use` (any order) names each
  /// taken page as often as it has holders.
  void check_integrity(std::span<const int32_t> in_use) const;

  /// Pages that hold `tokens` tokens.
  static int32_t pages_for(int64_t tokens) {
    return static_cast<int32_t>((tokens + kPageTokens - 1) / kPageTokens);
  }

 private:
  size_t index(int32_t page) const;

  std::vector<int32_t> free_;  // last in, first out
  std::vector<int32_t> references_;
  std::vector<uint8_t> marked_;
  int32_t reclaimable_count_ = 0;
};

}  // namespace nibble
