// The tree's own rules, checked from scratch.
#include <map>

#include "base/check.h"
#include "engine/cache/prefix_tree.h"

namespace nibble {

void PrefixTree::check_node(const PrefixNode& node) const {
  const PrefixNode& parent = *node.parent;
  CHECK(node.depth == parent.depth + 1, "depth ", node.depth, " below ", parent.depth);
  CHECK(node.page >= 0 || node.host_page >= 0, "depth ", node.depth, " holds no page");
  CHECK(node.locks == 0 || node.page >= 0, "depth ", node.depth, " has a cursor and no page");
  CHECK(node.page < 0 || parent.depth == 0 || parent.page >= 0, "depth ", node.depth,
        " is on the device and the page above is not");
  CHECK(node.locks <= parent.locks, "depth ", node.depth, " has more cursors than its parent");
  CHECK(!node.condemned || (node.locks > 0 && !node.has_snapshot() && node.host_page < 0), "depth ",
        node.depth, " is condemned and kept");
  if (node.page >= 0) {
    const bool marked = pools.pages.marked(node.page) == KvPool::Reclaim::yes;
    CHECK(marked == (node.locks == 0), "page ", node.page, " is marked ", marked, " with ",
          node.locks, " cursors");
  }
  const auto ranked = [&](Tier tier) { return node.ranks[static_cast<size_t>(tier)].has_value(); };
  CHECK(ranked(Tier::device_pages) ==
            (node.page >= 0 && node.device_children == 0 && node.locks == 0),
        "depth ", node.depth, " is misplaced among the device leaves");
  CHECK(ranked(Tier::device_slots) == (node.slot >= 0), "slot ", node.slot, " is misplaced");
  CHECK(ranked(Tier::host_pages) ==
            (node.host_page >= 0 && (node.page >= 0 || node.children.empty())),
        "host page ", node.host_page, " is misplaced");
  CHECK(ranked(Tier::host_slots) == (node.host_slot >= 0), "host slot ", node.host_slot,
        " is misplaced");
}

void PrefixTree::check_integrity(PrefixCache::Owned& owned) const {
  struct Sums {
    int32_t device_children = 0, snapshots = 0, pinned = 0, locks = 0;
    size_t children = 0;
  };
  std::map<const PrefixNode*, Sums> sums;
  std::array<size_t, kTiers> ranked = {};
  int32_t host_pages = 0;
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {  // children before parents
    Sums& own = sums[&*node];
    own.snapshots += node->has_snapshot() ? 1 : 0;
    own.pinned += node->has_snapshot() && node->place == SnapshotPlace::pinned ? 1 : 0;
    CHECK(own.snapshots == node->snapshots_below, "snapshots at depth ", node->depth);
    CHECK(own.pinned == node->pinned_below, "pinned at depth ", node->depth);
    CHECK(own.device_children == node->device_children, "pages below depth ", node->depth);
    CHECK(own.locks <= node->locks, "cursors at depth ", node->depth);
    CHECK(own.children == node->children.size(), "children at depth ", node->depth);
    for (size_t tier = 0; tier < kTiers; ++tier) ranked[tier] += node->ranks[tier] ? 1 : 0;
    if (node->parent == nullptr) {
      CHECK(node->locks > 0 || !node->children.empty(), "an empty root is kept");
      CHECK(find_root(node->salt) == &*node, "a root is lost");
      continue;
    }
    check_node(*node);
    Sums& above = sums[node->parent];
    above.device_children += node->page >= 0 ? 1 : 0;
    above.snapshots += own.snapshots;
    above.pinned += own.pinned;
    above.locks += node->locks;
    above.children += node->condemned && !node->parent->condemned ? 0 : 1;
    if (node->page >= 0) owned.pages.push_back(node->page);
    if (node->slot >= 0) owned.slots.push_back(node->slot);
    if (node->host_page >= 0) owned.host_pages.push_back(node->host_page);
    if (node->host_slot >= 0) owned.host_slots.push_back(node->host_slot);
    host_pages += node->host_page >= 0 ? 1 : 0;
  }
  for (size_t tier = 0; tier < kTiers; ++tier)
    CHECK(ranked[tier] == rankings_[tier].size(), "tier ", tier, " ranks ", rankings_[tier].size(),
          " of ", ranked[tier]);
  CHECK(host_pages == host_page_count_, "host pages ", host_pages, " of ", host_page_count_);
}

}  // namespace nibble
