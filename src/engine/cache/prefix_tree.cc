// Structure of the tree: keys, children, locks, removal. Nodes live in a flat list, so that a path
// of 16,000 pages needs no recursion anywhere.
#include "engine/cache/prefix_tree.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "base/planted_bug.h"

namespace nibble {
namespace {

bool equal(const MediaSpan& a, const MediaSpan& b) {
  return a.begin == b.begin && a.count == b.count && a.digest == b.digest;
}

}  // namespace

PrefixTree::PrefixTree(CachePools& cache_pools, CacheStore& cache_backend, PrefillCost cost,
                       uint64_t hash_mask)
    : pools(cache_pools), backend(cache_backend), cost_(cost), hash_mask_(hash_mask) {
  if (planted(kBugTrustsWeakHash)) hash_mask_ &= 3;
}

PrefixTree::~PrefixTree() {
  clear();
  CHECK(nodes_.empty(), nodes_.size(), " nodes are held by cursors that outlive the cache");
}

PageKey PrefixTree::page_key(const PrefixKey& key, int32_t page_index) const {
  const int32_t begin = page_index * kPageTokens;
  PageKey page;
  page.tokens = key.tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(kPageTokens));
  uint64_t hash = mixed_hash(1, planted(kBugIgnoresSalt) ? 0 : key.salt);
  for (size_t i = 0; i < page.tokens.size(); i += 2) {
    uint64_t two = 0;
    std::memcpy(&two, &page.tokens[i], sizeof(two));
    hash = mixed_hash(hash, two);
  }
  const auto ends_before = [begin](const MediaSpan& m) { return m.begin + m.count <= begin; };
  auto media = std::ranges::partition_point(key.media, ends_before);
  for (; media != key.media.end() && media->begin < begin + kPageTokens; ++media) {
    if (planted(kBugIgnoresMedia)) break;
    page.media.push_back({media->begin - begin, media->count, media->digest});
    hash = mixed_hash(mixed_hash(hash, media->digest[0]), media->digest[1]);
  }
  page.hash = hash & hash_mask_;
  return page;
}

PrefixNode& PrefixTree::create(PrefixNode* parent, uint64_t salt) {
  PrefixNode& node = nodes_.emplace_back();
  node.self = std::prev(nodes_.end());
  node.tree = this;
  node.parent = parent;
  node.serial = serial_++;
  node.salt = salt;
  ++version;
  return node;
}

PrefixNode* PrefixTree::find_root(uint64_t salt) const {
  const auto found = roots_.find(planted(kBugIgnoresSalt) ? 0 : salt);
  return found == roots_.end() ? nullptr : found->second;
}

PrefixNode& PrefixTree::root(uint64_t salt) {
  if (planted(kBugIgnoresSalt)) salt = 0;
  if (PrefixNode* found = find_root(salt)) return *found;
  PrefixNode& node = create(nullptr, salt);
  roots_.emplace(salt, &node);
  return node;
}

PrefixNode* PrefixTree::find_child(const PrefixNode& parent, const PageKey& page) const {
  const auto [begin, end] = parent.children.equal_range(page.hash);
  for (auto child = begin; child != end; ++child) {
    const PrefixNode& node = *child->second;
    if (planted(kBugTrustsWeakHash)) return child->second;
    if (std::ranges::equal(node.tokens, page.tokens) &&
        std::ranges::equal(node.media, page.media, equal))
      return child->second;
  }
  return nullptr;
}

std::vector<PrefixNode*> PrefixTree::find_path(const PrefixKey& key, int32_t pages_max) const {
  std::vector<PrefixNode*> path;
  const int32_t whole = static_cast<int32_t>(key.tokens.size()) / kPageTokens;
  PrefixNode* node = find_root(key.salt);
  for (int32_t index = 0; node != nullptr && index < std::min(pages_max, whole); ++index) {
    if (node->children.empty()) break;
    node = find_child(*node, page_key(key, index));
    if (node != nullptr) path.push_back(node);
  }
  return path;
}

PrefixNode& PrefixTree::add_child(PrefixNode& parent, const PageKey& page) {
  PrefixNode& node = create(&parent, parent.salt);
  node.hash = page.hash;
  node.depth = parent.depth + 1;
  node.condemned = parent.condemned;
  std::ranges::copy(page.tokens, node.tokens.begin());
  node.media = page.media;
  parent.children.emplace(page.hash, &node);
  refresh(parent);
  return node;
}

void PrefixTree::lock(PrefixNode& node) {
  for (PrefixNode* at = &node; at != nullptr; at = at->parent) lock_one(*at);
}

void PrefixTree::lock_one(PrefixNode& node) {
  if (node.locks++ > 0) return;
  if (node.page >= 0) pools.pages.mark(node.page, KvPool::Reclaim::no);
  refresh(node);
}

void PrefixTree::unlock(PrefixNode& node) {
  PrefixNode* parent = nullptr;
  for (PrefixNode* at = &node; at != nullptr; at = parent) {
    parent = at->parent;
    CHECK(at->locks > 0, "a cursor was released twice at depth ", at->depth);
    if (--at->locks > 0) continue;
    if (at->condemned) {
      remove(*at);
    } else if (parent == nullptr) {
      drop_root_if_idle(*at);
    } else {
      if (at->page >= 0) pools.pages.mark(at->page, KvPool::Reclaim::yes);
      refresh(*at);
    }
  }
}

void PrefixTree::drop_root_if_idle(PrefixNode& node) {
  if (node.parent != nullptr || node.locks > 0 || !node.children.empty()) return;
  roots_.erase(node.salt);
  nodes_.erase(node.self);
}

void PrefixTree::remove(PrefixNode& node) {
  CHECK(node.children.empty() && node.locks == 0, "depth ", node.depth,
        " is in use: ", node.children.size(), " children, ", node.locks, " cursors");
  if (node.has_snapshot()) drop_snapshot(node);
  if (node.host_page >= 0) drop_host_page(node);
  if (node.page >= 0) drop_page(node);
  for (size_t tier = 0; tier < kTiers; ++tier) rank(node, static_cast<Tier>(tier), std::nullopt);
  PrefixNode& parent = *node.parent;
  auto [begin, end] = parent.children.equal_range(node.hash);
  const auto edge = std::find_if(begin, end, [&](const auto& e) { return e.second == &node; });
  if (edge != end) parent.children.erase(edge);  // a condemned path has none at its top
  nodes_.erase(node.self);
  ++version;
  refresh(parent);
  drop_root_if_idle(parent);
}

std::vector<PrefixNode*> PrefixTree::subtree(PrefixNode& top) const {
  std::vector<PrefixNode*> nodes = {&top};
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const auto& [hash, child] : nodes[i]->children) nodes.push_back(child);
  std::ranges::reverse(nodes);
  return nodes;
}

void PrefixTree::remove_subtree(PrefixNode& top) {
  for (PrefixNode* node : subtree(top)) remove(*node);
}

void PrefixTree::condemn(PrefixNode& node) {
  if (node.depth == 0 || node.condemned || planted(kBugCondemnsNothing)) return;
  PrefixNode* top = &node;
  while (top->depth > 1) top = top->parent;
  for (PrefixNode* at : subtree(*top)) {
    if (at->locks == 0) {
      remove(*at);
      continue;
    }
    at->condemned = true;
    if (at->has_snapshot()) drop_snapshot(*at);
    if (at->host_page >= 0) drop_host_page(*at);
  }
  auto& edges = top->parent->children;
  auto [begin, end] = edges.equal_range(top->hash);
  edges.erase(std::find_if(begin, end, [&](const auto& e) { return e.second == top; }));
}

void PrefixTree::clear() {
  std::vector<PrefixNode*> tops;
  for (const auto& [salt, node] : roots_) tops.push_back(node);
  for (PrefixNode* top : tops) {
    std::vector<PrefixNode*> nodes = subtree(*top);
    nodes.pop_back();  // the root, which goes with its last child
    for (PrefixNode* node : nodes) {
      if (node->locks == 0) {
        remove(*node);
        continue;
      }
      if (node->has_snapshot()) drop_snapshot(*node);
      if (node->host_page >= 0) drop_host_page(*node);
    }
  }
}

}  // namespace nibble
