// MediaHostTier: the rows of encoded media in host memory that had to make room for others on the
// device. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache/media_cache.h"
#include "model/backend.h"

namespace nibble {

class MediaHostTier {
 public:
  /// `rows` of host memory, PoolSizes::host_media_rows; 0: nothing is kept.
  MediaHostTier(Backend& backend, int32_t rows) : backend_(backend), cache_(rows) {}

  /// Copies the rows at `places` of the device, unless they are here already.
  void keep(const MediaKey& key, uint64_t tenant, std::span<const int32_t> places);
  /// Copies the rows of `key` to `places` of the device. False: they are not here.
  bool restore(const MediaKey& key, std::span<const int32_t> places);
  /// Keeps the rows of `key`, if they are here, while others come: until unpin().
  void pin(const MediaKey& key);
  void unpin();
  void clear() { cache_.clear(); }
  void check_integrity() const {
    cache_.check_integrity([](int32_t) { return 0; });
  }

 private:
  Backend& backend_;
  MediaCache cache_;
  std::vector<int32_t> pinned_;  // entries
};

}  // namespace nibble
