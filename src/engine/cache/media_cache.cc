// Entries, their rows, and who goes first.
#include "engine/cache/media_cache.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/planted_bug.h"

namespace nibble {

MediaCache::MediaCache(int32_t rows, Evicted evicted)
    : rows_(rows), free_(static_cast<size_t>(rows)), on_evicted_(std::move(evicted)) {
  std::iota(free_.rbegin(), free_.rend(), 0);  // the lowest are taken first
}

std::optional<int32_t> MediaCache::find(const MediaKey& key) const {
  const auto found = whole_.find(key);
  return found == whole_.end() ? std::nullopt : std::optional(found->second);
}

void MediaCache::make_room(uint64_t tenant, int32_t rows) {
  const bool is_new = !tenants_.contains(tenant);
  const int64_t share = rows_ / (std::ssize(tenants_) + (is_new ? 1 : 0));
  using Oldest = std::pair<int64_t, uint64_t>;  // last use of its oldest idle entry, tenant
  std::set<Oldest> over;
  const auto add_if_over = [&](uint64_t id, const Tenant& owner) {
    const bool is_over = owner.rows + (id == tenant ? rows : 0) > share;
    if (is_over && !owner.idle.empty()) over.emplace(owner.idle.begin()->first, id);
  };
  for (const auto& [id, owner] : tenants_) add_if_over(id, owner);
  while (rows > std::ssize(free_) && !over.empty()) {
    const auto [used_at, id] = *over.begin();
    over.erase(over.begin());
    evict(idle_.at(used_at));
    const auto owner = tenants_.find(id);
    if (owner != tenants_.end()) add_if_over(id, owner->second);
  }
  while (rows > std::ssize(free_)) {
    CHECK(!idle_.empty(), "no media to evict");
    evict(idle_.begin()->second);
  }
}

std::optional<int32_t> MediaCache::begin(const MediaKey& key, uint64_t tenant) {
  CHECK(key.rows > 0 && !find(key), "media of ", key.rows, " rows");
  if (key.rows > std::ssize(free_) + idle_rows_) return std::nullopt;
  if (key.rows > std::ssize(free_)) make_room(tenant, key.rows);
  Entry entry{.key = key, .tenant = tenant, .holders = 1, .used_at = ++clock_};
  entry.places.assign(free_.end() - key.rows, free_.end());
  std::ranges::reverse(entry.places);
  free_.resize(free_.size() - static_cast<size_t>(key.rows));
  tenants_[tenant].rows += key.rows;
  entries_.emplace(next_id_, std::move(entry));
  return next_id_++;
}

void MediaCache::evict(int32_t entry) {
  ++evicted_;
  const Entry& gone = entries_.at(entry);
  if (gone.whole && on_evicted_) on_evicted_(gone.key, gone.tenant, gone.places);
  erase(entry);
}

void MediaCache::erase(int32_t entry) {
  const Entry& gone = entries_.at(entry);
  if (gone.holders == 0) set_held(entry);
  const auto owner = tenants_.find(gone.tenant);
  owner->second.rows -= gone.key.rows;
  if (owner->second.rows == 0) tenants_.erase(owner);
  if (gone.whole) whole_.erase(gone.key);
  free_.insert(free_.end(), gone.places.rbegin(), gone.places.rend());
  entries_.erase(entry);
}

void MediaCache::set_idle(int32_t entry) {
  const Entry& idle = entries_.at(entry);
  idle_rows_ += idle.key.rows;
  idle_.emplace(idle.used_at, entry);
  tenants_.at(idle.tenant).idle.emplace(idle.used_at, entry);
}

/// It is in use, or goes.
void MediaCache::set_held(int32_t entry) {
  const Entry& held = entries_.at(entry);
  idle_rows_ -= held.key.rows;
  idle_.erase(held.used_at);
  tenants_.at(held.tenant).idle.erase(held.used_at);
}

void MediaCache::clear() {
  while (!entries_.empty()) {
    const auto& [id, entry] = *entries_.begin();
    CHECK(entry.holders == 0, "media entry ", id, " is held");
    erase(id);
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
  erase(entry);
}

void MediaCache::hold(int32_t entry) {
  Entry& held = entries_.at(entry);
  if (held.holders++ == 0 && !planted(kBugEvictsHeldMedia)) set_held(entry);
  held.used_at = ++clock_;
}

void MediaCache::release(int32_t entry) {
  Entry& held = entries_.at(entry);
  CHECK(held.holders > 0, "media entry ", entry, " is held by nobody");
  if (--held.holders == 0) set_idle(entry);
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

void MediaCache::check_idle() const {
  std::map<uint64_t, Tenant> tenants;
  Idle idle;
  int32_t rows = 0;
  for (const auto& [id, entry] : entries_) {
    Tenant& owner = tenants[entry.tenant];
    owner.rows += entry.key.rows;
    if (entry.holders > 0) continue;
    rows += entry.key.rows;
    idle.emplace(entry.used_at, id);
    owner.idle.emplace(entry.used_at, id);
  }
  CHECK(rows == idle_rows_ && idle == idle_, "idle media of ", rows, " rows, counted ", idle_rows_);
  CHECK(tenants == tenants_, "media of ", tenants.size(), " tenants, counted ", tenants_.size());
}

}  // namespace nibble
