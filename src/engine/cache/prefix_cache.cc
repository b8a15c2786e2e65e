// The verbs of PrefixCache, over the tree's.
#include "engine/cache/prefix_cache.h"

#include <algorithm>

#include "base/check.h"
#include "base/planted_bug.h"
#include "engine/cache/prefix_tree.h"

namespace nibble {

PrefixCache::Cursor::Cursor(Node* node) : node_(node) { node_->tree->lock(*node_); }
PrefixCache::Cursor::~Cursor() {
  if (node_ != nullptr) node_->tree->unlock(*node_);
}
PrefixCache::Cursor& PrefixCache::Cursor::operator=(Cursor&& other) noexcept {
  Cursor old(std::move(*this));
  node_ = std::exchange(other.node_, nullptr);
  return *this;
}

PrefixCache::PrefixCache(CachePools& pools, CacheStore& backend, PrefillCost cost,
                         uint64_t hash_mask)
    : tree_(std::make_unique<PrefixTree>(pools, backend, cost, hash_mask)) {}
PrefixCache::~PrefixCache() = default;

PrefixCache::Match PrefixCache::match(const PrefixKey& key, int32_t tokens_max) const {
  const std::vector<Node*> path =
      tree_->find_path(key, static_cast<int32_t>(key.tokens.size()) / kPageTokens);
  if (planted(kBugMatchesBeyondLimit)) tokens_max = static_cast<int32_t>(key.tokens.size());
  Match match;
  int32_t device_pages = 0;
  int32_t idle_pages = 0;
  for (const Node* node : path) {
    match.matched_tokens = node->tokens_end();
    const KvPool& pages = tree_->pools.pages;
    if (node->page >= 0) {
      ++device_pages;
      if (pages.references(node->page) == 1 && pages.marked(node->page) == KvPool::Reclaim::yes)
        ++idle_pages;
    }
    if (!node->has_snapshot() || node->tokens_end() > tokens_max) continue;
    match.tokens = node->tokens_end();
    match.device_pages = device_pages;
    match.idle_pages = idle_pages;
  }
  return match;
}

int64_t PrefixCache::version() const { return tree_->version; }

std::optional<PrefixCache::Hit> PrefixCache::acquire(const PrefixKey& key, int32_t tokens,
                                                     int32_t slot, double now_ms) {
  CHECK(tokens > 0 && tokens % kPageTokens == 0, "acquire ", tokens, " tokens");
  const int32_t depth = tokens / kPageTokens;
  const std::vector<Node*> path = tree_->find_path(key, depth);
  if (static_cast<int32_t>(path.size()) < depth || !path.back()->has_snapshot())
    return std::nullopt;
  Node& last = *path.back();
  Cursor cursor(&last);
  const auto on_host = [](const Node* node) { return node->page < 0; };
  const int32_t missing = static_cast<int32_t>(std::ranges::count_if(path, on_host));
  if (missing > tree_->available_pages()) {
    if (planted(kBugAcquireLeaksCursor)) tree_->lock(last);
    return std::nullopt;
  }
  // The state first: making room for pages may cost the snapshot.
  if (last.slot >= 0) {
    tree_->backend.copy_state(last.slot, slot);
  } else {
    tree_->backend.load_state(last.host_slot, slot);
    ++tree_->counters.states_loaded;
  }
  last.state_reuse.touch(now_ms);
  ++last.snapshot_hits;
  const std::vector<int32_t> fresh = *allocate_pages(missing, now_ms);
  std::vector<IdPair> loads;
  Hit hit;
  for (Node* node : path) {
    if (node->page < 0) {
      const int32_t page = fresh[loads.size()];
      loads.push_back({.from = node->host_page, .to = page});
      tree_->give_page(*node, page);
      ++tree_->counters.pages_loaded;
    }
    tree_->pools.pages.retain(node->page);
    hit.pages.push_back(node->page);
    node->page_reuse.touch(now_ms);
    tree_->refresh(*node);
  }
  tree_->backend.move_pages(CacheMove::load, loads);
  hit.cursor = std::move(cursor);
  ++tree_->counters.lookups;
  ++tree_->counters.hits;
  tree_->counters.hit_tokens += tokens;
  return hit;
}

PrefixCache::Cursor PrefixCache::root(uint64_t salt) {
  ++tree_->counters.lookups;
  return Cursor(&tree_->root(salt));
}

int32_t PrefixCache::extend(Cursor& cursor, const PrefixKey& key, int32_t page, double now_ms) {
  Node& parent = *cursor.node_;
  CHECK(static_cast<int64_t>(key.tokens.size()) >= parent.tokens_end() + kPageTokens, "key of ",
        key.tokens.size(), " tokens after ", parent.tokens_end());
  KvPool& pages = tree_->pools.pages;
  const PageKey page_key = tree_->page_key(key, parent.depth);
  Node* child = parent.condemned ? nullptr : tree_->find_child(parent, page_key);
  if (child == nullptr) child = &tree_->add_child(parent, page_key);
  tree_->lock_one(*child);
  cursor.node_ = child;
  child->page_reuse.touch(now_ms);
  if (child->page >= 0) {
    const int32_t own = child->page;
    if (!planted(kBugDedupeForgetsRetain)) pages.retain(own);
    if (!planted(kBugDedupeKeepsPage)) pages.release(page);
    tree_->refresh(*child);
    return own;
  }
  pages.retain(page);
  tree_->give_page(*child, page);
  return page;
}

void PrefixCache::attach(const Cursor& cursor, int32_t slot, SnapshotPlace place, double now_ms) {
  Node* node = cursor.node_;
  if (planted(kBugSnapshotToParent) && node->depth > 1) node = node->parent;
  if (node->depth == 0 || node->condemned || node->has_snapshot()) {
    tree_->pools.slots.release(slot);
    if (node->has_snapshot() &&
        PrefixTree::place_weight(place) > PrefixTree::place_weight(node->place))
      tree_->set_place(*node, place);
    return;
  }
  node->state_reuse = {};
  node->state_reuse.touch(now_ms);
  tree_->give_snapshot(*node, slot, -1, place);
  if (place == SnapshotPlace::interval) return;
  for (Node* at = node->parent; at != nullptr; at = at->parent) {
    if (at->has_snapshot() && at->place == SnapshotPlace::interval && at->snapshot_hits == 0)
      tree_->drop_snapshot(*at);
  }
}

bool PrefixCache::has_snapshot(const Cursor& cursor) const { return cursor.node_->has_snapshot(); }
int32_t PrefixCache::tokens(const Cursor& cursor) const { return cursor.node_->tokens_end(); }

void PrefixCache::condemn(Cursor& cursor) {
  tree_->condemn(*cursor.node_);
  cursor = Cursor();
}

std::optional<std::vector<int32_t>> PrefixCache::allocate_pages(int32_t count, double) {
  if (!tree_->make_room_for_pages(count)) return std::nullopt;
  return tree_->pools.pages.allocate(count);
}
std::optional<int32_t> PrefixCache::allocate_slot(double) {
  if (!tree_->make_room_for_slot()) return std::nullopt;
  return tree_->pools.slots.allocate();
}
std::optional<std::vector<int32_t>> PrefixCache::allocate_host_pages(int32_t count, double) {
  if (!tree_->make_room_for_host_pages(count)) return std::nullopt;
  return tree_->pools.host_pages.allocate(count);
}
std::optional<int32_t> PrefixCache::allocate_host_slot(double) {
  if (!tree_->make_room_for_host_slot()) return std::nullopt;
  return tree_->pools.host_slots.allocate();
}

int32_t PrefixCache::available_pages() const { return tree_->available_pages(); }
int32_t PrefixCache::available_slots() const { return tree_->available_slots(); }
int32_t PrefixCache::available_host_pages() const { return tree_->available_host_pages(); }
int32_t PrefixCache::available_host_slots() const { return tree_->available_host_slots(); }

void PrefixCache::clear() { tree_->clear(); }
const PrefixCounters& PrefixCache::counters() const { return tree_->counters; }
void PrefixCache::check_integrity(Owned& owned) const { tree_->check_integrity(owned); }

}  // namespace nibble
