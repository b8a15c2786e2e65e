// MediaCache: which of the backend's media rows hold what the vision tower made of which media.
// Ids and decisions only, as the pools of pages and slots; a second one is for rows in host memory.
// The least recently used goes first; a tenant that has more than its share loses its own before
// others lose theirs. One thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace nibble {

/// Equal keys stand for equal rows. Tenants that keep their prefixes apart (salt) share no media
/// either.
struct MediaKey {
  uint64_t salt = 0;
  std::array<uint64_t, 2> digest = {};
  int32_t rows = 0;
  auto operator<=>(const MediaKey&) const = default;
};

class MediaCache {
 public:
  /// Takes an entry that has to make room for others.
  using Evicted =
      std::function<void(const MediaKey& key, uint64_t tenant, std::span<const int32_t> places)>;
  /// `rows` of the backend, PoolSizes::media_rows or host_media_rows. `evicted` is called before
  /// the rows of a whole entry are given to another.
  explicit MediaCache(int32_t rows, Evicted evicted = {});

  /// The entry that holds this, whole; nothing: none does.
  std::optional<int32_t> find(const MediaKey& key) const;
  /// Rows for what is to be encoded, taken from entries that nobody holds if there are too few free
  /// ones. The entry is held once and not found until finish(). Nothing, and nothing lost, if what
  /// is held leaves too few.
  std::optional<int32_t> begin(const MediaKey& key, uint64_t tenant);
  void finish(int32_t entry);
  /// Gives up an entry that was begun: it was not finished, or is of no use.
  void drop(int32_t entry);
  /// Forgets all entries, which nobody may hold.
  void clear();
  void hold(int32_t entry);
  void release(int32_t entry);
  /// The backend's media rows of an entry, in order.
  std::span<const int32_t> places(int32_t entry) const { return entries_.at(entry).places; }

  int32_t size() const { return rows_; }
  int32_t used() const { return rows_ - static_cast<int32_t>(free_.size()); }
  int64_t evicted() const { return evicted_; }
  /// CHECKs that each row has one owner, and each entry as many holders as `holds(entry)` says.
  template <typename Holds>
  void check_integrity(const Holds& holds) const {
    for (const auto& [id, entry] : entries_) check_holders(id, entry.holders, holds(id));
    check_rows();
    check_idle();
  }

 private:
  struct Entry {
    MediaKey key;
    uint64_t tenant = 0;
    std::vector<int32_t> places;
    int32_t holders = 0;
    bool whole = false;
    int64_t used_at = 0;
  };
  /// Entries that nobody holds, by the time of their last use.
  using Idle = std::map<int64_t, int32_t>;
  struct Tenant {
    int32_t rows = 0;  // rows of all its entries, at least 1
    Idle idle;
    bool operator==(const Tenant&) const = default;
  };
  /// Frees rows for a tenant that wants so many, of which there are enough: the oldest of tenants
  /// beyond their share first.
  void make_room(uint64_t tenant, int32_t rows);
  void evict(int32_t entry);
  void erase(int32_t entry);
  void set_idle(int32_t entry);
  void set_held(int32_t entry);
  static void check_holders(int32_t entry, int32_t counted, int32_t expected);
  void check_rows() const;
  void check_idle() const;

  int32_t rows_;
  std::vector<int32_t> free_;
  Evicted on_evicted_;
  std::map<int32_t, Entry> entries_;
  std::map<MediaKey, int32_t> whole_;
  // Derived from the entries, so that to make room costs no walk over all of them.
  std::map<uint64_t, Tenant> tenants_;
  Idle idle_;
  int32_t idle_rows_ = 0;
  int32_t next_id_ = 0;
  int64_t clock_ = 0;
  int64_t evicted_ = 0;
};

}  // namespace nibble
