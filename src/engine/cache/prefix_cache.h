// PrefixCache: what earlier prompts have computed, found again by their token ids. One tree per
// salt whose edge is one page of 64 tokens: a node owns a KV page (on the device, in host memory,
// or both) and, at some places, a snapshot of the recurrent state after its last token. A prefix
// can be reused up to a node that has a snapshot and whose pages are all still somewhere.
// Ids and decisions only; bytes are moved by the backend. One thread; time comes as an argument.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/cache/kv_pool.h"
#include "engine/cache/state_pool.h"
#include "model/backend.h"

namespace nibble {

/// The four pools of ids: device pages and slots, and those in host memory.
struct CachePools {
  explicit CachePools(const PoolSizes& sizes)
      : pages(sizes.pages),
        slots(sizes.state_slots),
        host_pages(sizes.host_pages),
        host_slots(sizes.host_slots) {}
  KvPool pages;
  StatePool slots;
  KvPool host_pages;
  StatePool host_slots;
};

/// Rows that are not text: placeholder tokens [begin, begin + count) stand for media of this
/// digest.
struct MediaSpan {
  int32_t begin = 0;
  int32_t count = 0;
  std::array<uint64_t, 2> digest = {};
  bool operator==(const MediaSpan&) const = default;
};

/// Prefixes are equal if these are: salt (tenant, cache_salt), token ids, media digests. `media` is
/// ascending and disjoint.
struct PrefixKey {
  uint64_t salt = 0;
  std::span<const int32_t> tokens;
  std::span<const MediaSpan> media;
};

/// The reason why a snapshot was taken; it decides how long it is worth keeping.
enum class SnapshotPlace : uint8_t {
  boundary,    // a semantic place: end of system prompt and tools, before the assistant's turn
  junction,    // where this prompt left a path that others used
  interval,    // every 8192 tokens of a long prompt: dropped first
  generation,  // fast mode: inside or at the end of generated text
  pinned,      // the caller asked to keep this prefix
};

/// Milliseconds to compute prompt tokens [begin, end) alone, for weighing evictions.
struct PrefillCost {
  double ms_per_token = 0.0604;
  double ms_per_token_depth = 1.026e-6;  // times tokens already there
  double ms(int32_t begin, int32_t end) const {
    const double tokens = end - begin;
    return tokens * (ms_per_token + ms_per_token_depth * (begin + tokens / 2));
  }
};

struct PrefixCounters {
  int64_t lookups = 0;
  int64_t hits = 0;
  int64_t hit_tokens = 0;
  int64_t pages_evicted = 0;      // device pages taken back
  int64_t snapshots_evicted = 0;  // device slots taken back
  int64_t pages_stored = 0;       // device to host
  int64_t pages_loaded = 0;       // host to device
  int64_t states_stored = 0;
  int64_t states_loaded = 0;
};

/// A whole prefix by value, for the disk tier: `pages` are the backend's page bytes in order,
/// `state` one state slot's.
struct PrefixBytes {
  uint64_t salt = 0;
  std::vector<int32_t> tokens;
  std::vector<MediaSpan> media;
  std::vector<std::byte> pages;
  std::vector<std::byte> state;
};

struct PrefixNode;
class PrefixTree;

class PrefixCache {
 public:
  using Node = PrefixNode;
  /// A place in the tree. While it lives, its node and all above it stay, with their device pages.
  /// It must not outlive the cache.
  class Cursor {
   public:
    Cursor() = default;
    Cursor(Cursor&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
    Cursor& operator=(Cursor&& other) noexcept;
    ~Cursor();
    explicit operator bool() const { return node_ != nullptr; }

   private:
    friend class PrefixCache;
    explicit Cursor(Node* node);
    Node* node_ = nullptr;
  };

  struct Match {
    int32_t tokens = 0;          // reusable, a multiple of 64
    int32_t device_pages = 0;    // of its tokens / 64 pages, those that need no new page
    int32_t idle_pages = 0;      // of the device pages, those that available_pages() counts now
    int32_t matched_tokens = 0;  // pages known beyond `tokens`: how far this prompt is a known path
  };

  /// `hash_mask`: bits kept of a page's hash; a test of collisions keeps few.
  PrefixCache(CachePools& pools, CacheStore& backend, PrefillCost cost, uint64_t hash_mask = ~0ULL);
  ~PrefixCache();

  /// The longest reusable prefix of at most `tokens_max` tokens. Changes nothing.
  Match match(const PrefixKey& key, int32_t tokens_max) const;
  /// Another number whenever a match may have changed (but for its idle pages).
  int64_t version() const;

  struct Hit {
    std::vector<int32_t> pages;  // tokens / 64, each retained once for the caller
    Cursor cursor;
  };
  /// Takes what match() found now: brings host pages back into device pages, copies the snapshot
  /// into state slot `slot`. Nothing, and nothing changed, if device pages do not suffice or the
  /// snapshot has gone since.
  std::optional<Hit> acquire(const PrefixKey& key, int32_t tokens, int32_t slot, double now_ms);
  /// The start of a path, for a prompt without a hit.
  Cursor root(uint64_t salt);

  /// Moves the cursor one page on. `page`, retained by the caller, holds the next 64 tokens of the
  /// key. Returns the page the caller is to hold in its place: the same, now also owned by the
  /// tree, or the tree's own equal one (retained for the caller; `page` was released).
  int32_t extend(Cursor& cursor, const PrefixKey& key, int32_t page, double now_ms);
  /// Gives state slot `slot` (state after the cursor's last token) to the cursor's node; returned
  /// to the pool if the node has a snapshot already (the stronger place then counts) or is a root
  /// or condemned. Drops the path's interval snapshots that nobody used, unless it is one.
  void attach(const Cursor& cursor, int32_t slot, SnapshotPlace place, double now_ms);
  bool has_snapshot(const Cursor& cursor) const;
  int32_t tokens(const Cursor& cursor) const;

  /// Takes the cursor's path, from its first page on and with all that hangs below, out of the
  /// tree, so that nobody finds it again: a result computed from it was not finite. The cursor is
  /// empty then; other cursors there stay usable, but what they add is not found either.
  void condemn(Cursor& cursor);

  /// Keeps the snapshot of the cursor's node, and the pages it needs, until nothing else is left
  /// to evict.
  enum class Pin : uint8_t { done, no_snapshot };
  Pin pin(const Cursor& cursor, double now_ms);
  /// The bytes of the cursor's whole path and its snapshot, read through host copies. Nothing if
  /// there is no snapshot, or no host page or slot to read through.
  std::optional<PrefixBytes> read(const Cursor& cursor, double now_ms);
  /// Puts a prefix that read() gave (to this or an earlier process) into host memory, pinned.
  /// The caller vouches for its bytes; sizes must be the backend's.
  enum class Restore : uint8_t { done, no_room };
  Restore restore(const PrefixBytes& prefix, double now_ms);

  /// Ids from the pools, evicting the least valuable contents as needed; nothing, and nothing
  /// evicted in vain, if held contents leave too few.
  std::optional<std::vector<int32_t>> allocate_pages(int32_t count, double now_ms);
  std::optional<int32_t> allocate_slot(double now_ms);
  std::optional<std::vector<int32_t>> allocate_host_pages(int32_t count, double now_ms);
  std::optional<int32_t> allocate_host_slot(double now_ms);
  /// Free ones and those that eviction would free.
  int32_t available_pages() const;
  int32_t available_slots() const;
  int32_t available_host_pages() const;
  int32_t available_host_slots() const;

  /// Everything not held goes: snapshots, host copies, pages under no cursor. Pinned ones too.
  void clear();

  const PrefixCounters& counters() const;
  /// CHECKs the tree's own rules and appends the ids it owns.
  struct Owned {
    std::vector<int32_t> pages, slots, host_pages, host_slots;
  };
  void check_integrity(Owned& owned) const;

 private:
  /// Appends the pages of a path. False if the host has no room for a page to pass through.
  bool read_pages(std::span<Node* const> path, std::vector<std::byte>& out, double now_ms);

  std::unique_ptr<PrefixTree> tree_;
};

}  // namespace nibble
