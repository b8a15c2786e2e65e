// PrefixTree: the nodes of PrefixCache and what moves between the tiers. One node is one page
// of 64 tokens below its parent; a root per salt holds none. Rules it keeps (check_integrity):
// nodes with a device page are closed towards the root, every node holds a device or a host page,
// and a node under a cursor holds its device page. Not thread-safe; time comes as an argument.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "engine/cache/prefix_cache.h"

namespace nibble {

class PrefixTree;

/// Pages of a path are equal if these are. `media` begins are relative to the page.
struct PageKey {
  std::span<const int32_t> tokens;
  std::vector<MediaSpan> media;
  uint64_t hash = 0;
};

/// Uses, each halved every kHalfLifeMs. score() orders two of them the same at any later time.
struct Reuse {
  static constexpr double kHalfLifeMs = 600000.0;
  double count = 0.0;
  double last_ms = 0.0;
  void touch(double now_ms);
  double score() const;  // log2 of the decayed count, up to a term common to all
};

enum class Tier : uint8_t { device_pages, device_slots, host_pages, host_slots };
inline constexpr size_t kTiers = 4;

struct PrefixNode {
  PrefixTree* tree = nullptr;
  PrefixNode* parent = nullptr;
  uint64_t serial = 0;
  uint64_t salt = 0;
  uint64_t hash = 0;
  int32_t depth = 0;  // pages up to and with this one
  std::array<int32_t, kPageTokens> tokens = {};
  std::vector<MediaSpan> media;  // as PageKey
  std::multimap<uint64_t, PrefixNode*> children;

  int32_t page = -1;
  int32_t host_page = -1;
  int32_t slot = -1;       // snapshot of the state after this node's last token
  int32_t host_slot = -1;  // the copy of that snapshot in host memory
  SnapshotPlace place = SnapshotPlace::boundary;
  int32_t snapshot_hits = 0;

  int32_t locks = 0;  // cursors here and below
  int32_t device_children = 0;
  int32_t snapshots_below = 0;  // here and below
  int32_t pinned_below = 0;
  bool condemned = false;  // out of the tree; lives as long as its cursors
  Reuse page_reuse;
  Reuse state_reuse;
  std::array<std::optional<double>, kTiers> ranks;  // its key in each ranking that it is in
  std::list<PrefixNode>::iterator self;

  bool has_snapshot() const { return slot >= 0 || host_slot >= 0; }
  int32_t tokens_end() const { return depth * kPageTokens; }
};

class PrefixTree {
 public:
  PrefixTree(CachePools& pools, CacheStore& backend, PrefillCost cost, uint64_t hash_mask);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // Structure (prefix_tree.cc).
  PageKey page_key(const PrefixKey& key, int32_t page_index) const;
  PrefixNode* find_root(uint64_t salt) const;
  PrefixNode& root(uint64_t salt);
  PrefixNode* find_child(const PrefixNode& parent, const PageKey& page) const;
  /// The known part of the key's first `pages_max` pages, from depth 1 on.
  std::vector<PrefixNode*> find_path(const PrefixKey& key, int32_t pages_max) const;
  /// Adds a node without a page: the caller gives it one at once.
  PrefixNode& add_child(PrefixNode& parent, const PageKey& page);
  void lock(PrefixNode& node);       // node and all above
  void lock_one(PrefixNode& child);  // the child takes over the lock of its parent
  void unlock(PrefixNode& node);     // removes what only the lock kept
  void condemn(PrefixNode& node);
  void clear();

  // Contents; each keeps counts, marks and ranks right (prefix_contents.cc).
  void give_page(PrefixNode& node, int32_t page);
  void drop_page(PrefixNode& node);
  void give_host_page(PrefixNode& node, int32_t host_page);
  void drop_host_page(PrefixNode& node);
  void give_snapshot(PrefixNode& node, int32_t slot, int32_t host_slot, SnapshotPlace place);
  void drop_slot(PrefixNode& node);
  void drop_host_slot(PrefixNode& node);
  void drop_snapshot(PrefixNode& node);
  void set_place(PrefixNode& node, SnapshotPlace place);
  /// Brings the node's place among the evictable up to date.
  void refresh(PrefixNode& node);
  void check_integrity(PrefixCache::Owned& owned) const;

  // Eviction (prefix_eviction.cc).
  bool make_room_for_pages(int32_t count);
  bool make_room_for_slot();
  bool make_room_for_host_pages(int32_t count);
  bool make_room_for_host_slot();
  int32_t available_pages() const;
  int32_t available_slots() const;
  int32_t available_host_pages() const;
  int32_t available_host_slots() const;
  static double place_weight(SnapshotPlace place);

  CachePools& pools;
  CacheStore& backend;
  PrefixCounters counters;
  int64_t version = 0;

 private:
  using Rank = std::tuple<double, uint64_t, PrefixNode*>;  // score, serial
  using Ranking = std::set<Rank>;

  PrefixNode& create(PrefixNode* parent, uint64_t salt);
  void remove(PrefixNode& node);
  void remove_subtree(PrefixNode& top);
  void drop_root_if_idle(PrefixNode& root);
  std::vector<PrefixNode*> subtree(PrefixNode& top) const;  // children before parents

  void rank(PrefixNode& node, Tier tier, std::optional<double> score);
  Ranking& ranking(Tier tier) { return rankings_[static_cast<size_t>(tier)]; }
  const Ranking& ranking(Tier tier) const { return rankings_[static_cast<size_t>(tier)]; }
  int32_t tokens_of_snapshot_above(const PrefixNode& node) const;
  double page_score(const PrefixNode& node) const;
  double snapshot_score(const PrefixNode& node) const;
  void check_node(const PrefixNode& node) const;

  PrefixNode* cheapest(Tier tier);
  PrefixNode* cheapest_page();
  void evict_page(PrefixNode& node);
  void evict_slot(PrefixNode& node);
  void evict_host_page(PrefixNode& node);
  void evict_host_slot(PrefixNode& node);
  /// Notes it in stores_. False if the host has no room for it, or nobody would ask for it.
  bool store_page(PrefixNode& node);
  bool store_state(PrefixNode& node);

  PrefillCost cost_;
  uint64_t hash_mask_;
  uint64_t serial_ = 0;
  std::list<PrefixNode> nodes_;
  std::unordered_map<uint64_t, PrefixNode*> roots_;  // by salt
  std::array<Ranking, kTiers> rankings_;
  std::vector<IdPair> stores_;  // pages that leave the device, copied when all have been chosen
  int32_t host_page_count_ = 0;
};

}  // namespace nibble
