// Moves rows to the host and back.
#include "engine/cache/media_host_tier.h"

#include <vector>

#include "base/planted_bug.h"

namespace nibble {
namespace {

std::vector<IdPair> pairs(std::span<const int32_t> from, std::span<const int32_t> to) {
  std::vector<IdPair> moves;
  for (size_t i = 0; i < from.size(); ++i) moves.push_back({.from = from[i], .to = to[i]});
  return moves;
}

}  // namespace

void MediaHostTier::keep(const MediaKey& key, uint64_t tenant, std::span<const int32_t> places) {
  if (const auto here = cache_.find(key)) {  // was used just now
    cache_.hold(*here);
    cache_.release(*here);
    return;
  }
  const auto entry = cache_.begin(key, tenant);
  if (!entry) return;
  if (!planted(kBugKeepsNoMediaOnHost))
    backend_.move_media(CacheMove::store, pairs(places, cache_.places(*entry)));
  cache_.finish(*entry);
  cache_.release(*entry);
}

void MediaHostTier::pin(const MediaKey& key) {
  const auto here = cache_.find(key);
  if (!here) return;
  cache_.hold(*here);
  pinned_.push_back(*here);
}

void MediaHostTier::unpin() {
  for (const int32_t entry : pinned_) cache_.release(entry);
  pinned_.clear();
}

bool MediaHostTier::restore(const MediaKey& key, std::span<const int32_t> places) {
  const auto here = cache_.find(key);
  if (!here) return false;
  backend_.move_media(CacheMove::load, pairs(cache_.places(*here), places));
  return true;
}

}  // namespace nibble
