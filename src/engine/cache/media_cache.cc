// Entries, their rows, and who goes first.
#include "engine/cache/media_cache.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/check.h"
#include "engine/planted_bug.h"

namespace nibble {

MediaCache::MediaCache(int32_t rows) : rows_(rows), free_(static_cast<size_t>(rows)) {
  std::iota(free_.rbegin(), free_.rend(), 0);  // the lowest are taken first
}

std::optional<int32_t> MediaCache::find(const MediaKey& key) const {
  const auto found = whole_.find(key);
  return found == whole_.end() ? std::nullopt : std::optional(found->second);
}

int32_t MediaCache::idle_rows() const {
  int32_t rows = 0;
  for (const auto& [id, entry] : entries_) rows += entry.holders == 0 ? entry.key.rows : 0;
  return rows;
}

int32_t MediaCache::rows_of(uint64_t tenant) const {
  int32_t rows = 0;
  for (const auto& [id, entry] : entries_) rows += entry.tenant == tenant ? entry.key.rows : 0;
  return rows;
}

MediaCache::Entries::iterator MediaCache::victim(uint64_t tenant, int32_t rows) {
  std::set<uint64_t> tenants = {tenant};
  for (const auto& [id, entry] : entries_) tenants.insert(entry.tenant);
  const int64_t share = rows_ / std::ssize(tenants);
  const auto is_over = [&](uint64_t owner) {
    return rows_of(owner) + (owner == tenant ? rows : 0) > share;
  };
  auto best = entries_.end();
  bool best_over = false;
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    if (at->second.holders > 0 && !planted(kBugEvictsHeldMedia)) continue;
    const bool over = is_over(at->second.tenant);
    const bool better = best == entries_.end() || (over && !best_over) ||
                        (over == best_over && at->second.used_at < best->second.used_at);
    if (better) best = at, best_over = over;
  }
  return best;
}

std::optional<int32_t> MediaCache::begin(const MediaKey& key, uint64_t tenant) {
  CHECK(key.rows > 0 && !find(key), "media of ", key.rows, " rows");
  if (key.rows > std::ssize(free_) + idle_rows()) return std::nullopt;
  while (key.rows > std::ssize(free_)) {
    const auto gone = victim(tenant, key.rows);
    CHECK(gone != entries_.end(), "no media to evict");
    ++evicted_;
    erase(gone);
  }
  Entry entry{.key = key, .tenant = tenant, .holders = 1, .used_at = ++clock_};
  entry.places.assign(free_.end() - key.rows, free_.end());
  std::ranges::reverse(entry.places);
  free_.resize(free_.size() - static_cast<size_t>(key.rows));
  entries_.emplace(next_id_, std::move(entry));
  return next_id_++;
}

void MediaCache::erase(Entries::iterator entry) {
  if (entry->second.whole) whole_.erase(entry->second.key);
  free_.insert(free_.end(), entry->second.places.rbegin(), entry->second.places.rend());
  entries_.erase(entry);
}

void MediaCache::clear() {
  while (!entries_.empty()) {
    CHECK(entries_.begin()->second.holders == 0, "media entry ", entries_.begin()->first,
          " is held");
    erase(entries_.begin());
    ++evicted_;
  }
}

void MediaCache::finish(int32_t entry) {
  Entry& finished = entries_.at(entry);
  CHECK(!finished.whole, "media entry ", entry, " was finished before");
  finished.whole = true;
  CHECK(whole_.emplace(finished.key, entry).second, "media are encoded twice");
}

void MediaCache::drop(int32_t entry) {
  const auto found = entries_.find(entry);
  CHECK(found != entries_.end() && !found->second.whole && found->second.holders == 1,
        "media entry ", entry, " is not one that was begun");
  erase(found);
}

void MediaCache::hold(int32_t entry) {
  Entry& held = entries_.at(entry);
  ++held.holders;
  held.used_at = ++clock_;
}

void MediaCache::release(int32_t entry) {
  Entry& held = entries_.at(entry);
  CHECK(held.holders > 0, "media entry ", entry, " is held by nobody");
  --held.holders;
}

void MediaCache::check_holders(int32_t entry, int32_t counted, int32_t expected) {
  CHECK(counted == expected, "media entry ", entry, " has ", counted, " holders, not ", expected);
}

void MediaCache::check_rows() const {
  std::vector<int32_t> all = free_;
  for (const auto& [id, entry] : entries_) {
    CHECK(std::ssize(entry.places) == entry.key.rows, "media entry ", id);
    CHECK(entry.whole == (whole_.contains(entry.key) && whole_.at(entry.key) == id), "media entry ",
          id, " is not where it is looked for");
    all.insert(all.end(), entry.places.begin(), entry.places.end());
  }
  std::ranges::sort(all);
  CHECK(std::ssize(all) == rows_ && std::ranges::adjacent_find(all) == all.end(), "media rows ",
        all.size(), " of ", rows_);
}

}  // namespace nibble
