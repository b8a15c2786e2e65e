// The contents of a node and their value. Within a tier all contents have the same size, so value
// per byte is value: chance of reuse x milliseconds saved, kept as a logarithm whose order does not
// change as time goes by.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/planted_bug.h"
#include "engine/cache/prefix_tree.h"

namespace nibble {
namespace {

// Terms of a score that outweigh everything measured.
constexpr double kPinned = 1e6;
constexpr double kUseless = -1e6;  // a page that no snapshot can use
constexpr double kCopy = -1e9;     // a host copy whose device copy lives

}  // namespace

void Reuse::touch(double now_ms) {
  const double age_ms = std::max(0.0, now_ms - last_ms);
  count = 1.0 + count * std::exp2(-age_ms / kHalfLifeMs);
  last_ms = std::max(last_ms, now_ms);
}

double Reuse::score() const { return std::log2(std::max(count, 1e-9)) + last_ms / kHalfLifeMs; }

double PrefixTree::place_weight(SnapshotPlace place) {
  switch (place) {
    case SnapshotPlace::boundary:
    case SnapshotPlace::junction:
      return 0.0;
    case SnapshotPlace::generation:
      return -1.0;
    case SnapshotPlace::interval:
      return -3.0;
    case SnapshotPlace::pinned:
      return kPinned;
  }
  return 0.0;
}

int32_t PrefixTree::tokens_of_snapshot_above(const PrefixNode& node) const {
  const PrefixNode* at = node.parent;
  while (at != nullptr && !at->has_snapshot()) at = at->parent;
  return at == nullptr ? 0 : at->tokens_end();
}

double PrefixTree::snapshot_score(const PrefixNode& node) const {
  const double saved_ms = cost_.ms(tokens_of_snapshot_above(node), node.tokens_end());
  return node.state_reuse.score() + std::log2(std::max(saved_ms, 1e-9)) + place_weight(node.place);
}

double PrefixTree::page_score(const PrefixNode& node) const {
  const double reuse = node.page_reuse.score();
  if (node.snapshots_below == 0) return reuse + kUseless;
  const int32_t above = tokens_of_snapshot_above(node);
  const double pages = (node.tokens_end() - above) / kPageTokens;
  const double saved_ms = cost_.ms(above, node.tokens_end()) / pages;
  double score = reuse + std::log2(std::max(saved_ms, 1e-9));
  if (node.pinned_below > 0)
    score += kPinned;
  else if (node.has_snapshot())
    score += place_weight(node.place);
  return score;
}

void PrefixTree::rank(PrefixNode& node, Tier tier, std::optional<double> score) {
  std::optional<double>& current = node.ranks[static_cast<size_t>(tier)];
  if (current == score) return;
  if (current) ranking(tier).erase({*current, node.serial, &node});
  if (score) ranking(tier).insert({*score, node.serial, &node});
  current = score;
}

void PrefixTree::refresh(PrefixNode& node) {
  if (node.depth == 0) return;
  const bool on_device = node.page >= 0;
  std::optional<double> page, slot, host_page, host_slot;
  const bool held = node.locks > 0 && !planted(kBugEvictsHeldPage);
  if (on_device && node.device_children == 0 && !held) page = page_score(node);
  if (node.slot >= 0) slot = snapshot_score(node);
  if (node.host_page >= 0) {
    if (on_device)
      host_page = node.page_reuse.score() + kCopy;
    else if (node.children.empty() && node.locks == 0)
      host_page = page_score(node);
  }
  if (node.host_slot >= 0)
    host_slot = node.slot >= 0 ? node.state_reuse.score() + kCopy : snapshot_score(node);
  rank(node, Tier::device_pages, page);
  rank(node, Tier::device_slots, slot);
  rank(node, Tier::host_pages, host_page);
  rank(node, Tier::host_slots, host_slot);
}

void PrefixTree::give_page(PrefixNode& node, int32_t page) {
  CHECK(node.page < 0, "depth ", node.depth, " has page ", node.page, " already");
  node.page = page;
  ++node.parent->device_children;
  ++version;
  if (node.locks == 0) pools.pages.mark(page, KvPool::Reclaim::yes);
  refresh(node);
  refresh(*node.parent);
}

void PrefixTree::drop_page(PrefixNode& node) {
  pools.pages.mark(node.page, KvPool::Reclaim::no);
  pools.pages.release(node.page);
  node.page = -1;
  --node.parent->device_children;
  ++version;
  refresh(node);
  refresh(*node.parent);
}

void PrefixTree::give_host_page(PrefixNode& node, int32_t host_page) {
  node.host_page = host_page;
  ++host_page_count_;
  ++version;
  refresh(node);
}

void PrefixTree::drop_host_page(PrefixNode& node) {
  pools.host_pages.release(node.host_page);
  node.host_page = -1;
  --host_page_count_;
  ++version;
  refresh(node);
}

void PrefixTree::give_snapshot(PrefixNode& node, int32_t slot, int32_t host_slot,
                               SnapshotPlace place) {
  CHECK(!node.has_snapshot(), "depth ", node.depth, " has a snapshot already");
  node.slot = slot;
  node.host_slot = host_slot;
  node.place = place;
  node.snapshot_hits = 0;
  const int32_t pinned = place == SnapshotPlace::pinned ? 1 : 0;
  for (PrefixNode* at = &node; at != nullptr; at = at->parent) {
    ++at->snapshots_below;
    at->pinned_below += pinned;
  }
  ++version;
  refresh(node);
}

void PrefixTree::drop_slot(PrefixNode& node) {
  pools.slots.release(node.slot);
  node.slot = -1;
  ++version;
  refresh(node);
}

void PrefixTree::drop_host_slot(PrefixNode& node) {
  pools.host_slots.release(node.host_slot);
  node.host_slot = -1;
  ++version;
  refresh(node);
}

void PrefixTree::drop_snapshot(PrefixNode& node) {
  const int32_t pinned = node.place == SnapshotPlace::pinned ? 1 : 0;
  if (node.slot >= 0) drop_slot(node);
  if (node.host_slot >= 0) drop_host_slot(node);
  for (PrefixNode* at = &node; at != nullptr; at = at->parent) {
    --at->snapshots_below;
    at->pinned_below -= pinned;
    if (at->snapshots_below == 0 || at->pinned_below == 0) refresh(*at);
  }
}

void PrefixTree::set_place(PrefixNode& node, SnapshotPlace place) {
  const int32_t change =
      (place == SnapshotPlace::pinned ? 1 : 0) - (node.place == SnapshotPlace::pinned ? 1 : 0);
  node.place = place;
  for (PrefixNode* at = &node; at != nullptr; at = at->parent) at->pinned_below += change;
  refresh(node);
}

}  // namespace nibble
