// Eviction and the host tier. What leaves the device goes to host memory if there is room or
// something of less value; host copies of what is on the device go first.
#include "base/check.h"
#include "base/planted_bug.h"
#include "engine/cache/prefix_tree.h"

namespace nibble {

int32_t PrefixTree::available_pages() const {
  const int32_t extra = planted(kBugAvailableOffByOne) ? 1 : 0;
  return pools.pages.free_count() + pools.pages.reclaimable_count() + extra;
}
int32_t PrefixTree::available_slots() const {
  return pools.slots.free_count() + static_cast<int32_t>(ranking(Tier::device_slots).size());
}
int32_t PrefixTree::available_host_pages() const {
  return pools.host_pages.free_count() + host_page_count_;
}
int32_t PrefixTree::available_host_slots() const {
  return pools.host_slots.free_count() + static_cast<int32_t>(ranking(Tier::host_slots).size());
}

// Scores go stale upwards only by what happens above a node, so the first is asked again.
PrefixNode* PrefixTree::cheapest(Tier tier) {
  while (!ranking(tier).empty()) {
    const Rank first = *ranking(tier).begin();
    PrefixNode* node = std::get<PrefixNode*>(first);
    refresh(*node);
    if (*ranking(tier).begin() == first) return node;
  }
  return nullptr;
}

// Skips pages that sequences hold besides the tree: at most one per running sequence is a leaf.
PrefixNode* PrefixTree::cheapest_page() {
  const Ranking& leaves = ranking(Tier::device_pages);
  auto at = leaves.begin();
  while (at != leaves.end()) {
    const Rank candidate = *at;
    PrefixNode* node = std::get<PrefixNode*>(candidate);
    if (pools.pages.references(node->page) > 1 && !planted(kBugEvictsHeldPage)) {
      ++at;
      continue;
    }
    refresh(*node);
    if (node->ranks[static_cast<size_t>(Tier::device_pages)] == std::get<double>(candidate))
      return node;
    at = leaves.begin();
  }
  return nullptr;
}

bool PrefixTree::make_room_for_pages(int32_t count) {
  if (count > available_pages()) return false;
  while (pools.pages.free_count() < count) {
    PrefixNode* node = cheapest_page();
    // All leaves are held by sequences that do not hold what is above: the tree lets go of one.
    if (node == nullptr) node = cheapest(Tier::device_pages);
    CHECK(node != nullptr, "pages: ", pools.pages.free_count(), " free, ",
          pools.pages.reclaimable_count(), " to reclaim, none found");
    evict_page(*node);
  }
  backend.move_pages(CacheMove::store, stores_);
  stores_.clear();
  return true;
}

bool PrefixTree::make_room_for_slot() {
  if (available_slots() < 1) return false;
  if (pools.slots.free_count() == 0) evict_slot(*cheapest(Tier::device_slots));
  return true;
}

bool PrefixTree::make_room_for_host_pages(int32_t count) {
  if (count > available_host_pages()) return false;
  while (pools.host_pages.free_count() < count) {
    PrefixNode* node = cheapest(Tier::host_pages);
    CHECK(node != nullptr, "host pages: ", host_page_count_, " in the tree, none to evict");
    evict_host_page(*node);
  }
  return true;
}

bool PrefixTree::make_room_for_host_slot() {
  if (available_host_slots() < 1) return false;
  if (pools.host_slots.free_count() == 0) evict_host_slot(*cheapest(Tier::host_slots));
  return true;
}

void PrefixTree::evict_page(PrefixNode& node) {
  ++counters.pages_evicted;
  const int32_t page = node.page;
  if (node.host_page < 0 && !store_page(node))
    remove_subtree(node);
  else
    drop_page(node);
  if (planted(kBugEvictsHeldPage))
    while (pools.pages.references(page) > 0) pools.pages.release(page);
}

void PrefixTree::evict_slot(PrefixNode& node) {
  ++counters.snapshots_evicted;
  if (node.host_slot < 0 && !store_state(node))
    drop_snapshot(node);
  else
    drop_slot(node);
}

void PrefixTree::evict_host_page(PrefixNode& node) {
  if (planted(kBugStaleHostCopy) && node.page >= 0) {
    pools.host_pages.release(node.host_page);
    rank(node, Tier::host_pages, std::nullopt);
  } else if (node.page >= 0) {
    drop_host_page(node);
  } else {
    remove_subtree(node);
  }
}

void PrefixTree::evict_host_slot(PrefixNode& node) {
  if (node.slot >= 0)
    drop_host_slot(node);
  else
    drop_snapshot(node);
}

bool PrefixTree::store_page(PrefixNode& node) {
  if (node.snapshots_below == 0) return false;
  if (pools.host_pages.free_count() == 0) {
    PrefixNode* victim = cheapest(Tier::host_pages);
    if (victim == nullptr) return false;
    if (*victim->ranks[static_cast<size_t>(Tier::host_pages)] >= page_score(node)) return false;
    evict_host_page(*victim);
  }
  const int32_t host_page = pools.host_pages.allocate(1)->front();
  const bool wrong = planted(kBugStoresWrongPage) && node.parent->page >= 0;
  // A page that waits for the same place has lost it: its node is gone.
  std::erase_if(stores_, [host_page](const IdPair& pair) { return pair.to == host_page; });
  stores_.push_back({.from = wrong ? node.parent->page : node.page, .to = host_page});
  give_host_page(node, host_page);
  ++counters.pages_stored;
  return true;
}

bool PrefixTree::store_state(PrefixNode& node) {
  if (pools.host_slots.free_count() == 0) {
    PrefixNode* victim = cheapest(Tier::host_slots);
    if (victim == nullptr) return false;
    if (*victim->ranks[static_cast<size_t>(Tier::host_slots)] >= snapshot_score(node)) return false;
    evict_host_slot(*victim);
  }
  const int32_t host_slot = *pools.host_slots.allocate();
  if (!planted(kBugForgetsToStoreState)) backend.store_state(node.slot, host_slot);
  node.host_slot = host_slot;
  refresh(node);
  ++counters.states_stored;
  return true;
}

}  // namespace nibble
