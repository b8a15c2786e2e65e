// Pinned prefixes: marked in the tree, read out of it for the disk tier, and put back.
#include <algorithm>

#include "base/check.h"
#include "engine/cache/prefix_tree.h"

namespace nibble {
namespace {

std::vector<PrefixNode*> path_to(PrefixNode* node) {
  std::vector<PrefixNode*> path;
  for (; node->depth > 0; node = node->parent) path.push_back(node);
  std::ranges::reverse(path);
  return path;
}

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// A span that covers several pages is known to each; its first page sees its begin.
void append_media(std::vector<MediaSpan>& media, const PrefixNode& node) {
  const int32_t page_begin = node.tokens_end() - kPageTokens;
  for (const MediaSpan& span : node.media)
    if (span.begin >= 0) media.push_back({span.begin + page_begin, span.count, span.digest});
}

}  // namespace

PrefixCache::Pin PrefixCache::pin(const Cursor& cursor, double now_ms) {
  Node& node = *cursor.node_;
  if (!node.has_snapshot()) return Pin::no_snapshot;
  node.state_reuse.touch(now_ms);
  tree_->set_place(node, SnapshotPlace::pinned);
  return Pin::done;
}

std::optional<PrefixBytes> PrefixCache::read(const Cursor& cursor, double now_ms) {
  Node& node = *cursor.node_;
  if (!node.has_snapshot()) return std::nullopt;
  CacheStore& backend = tree_->backend;
  PrefixBytes out;
  out.salt = node.salt;
  // The state first: room for pages may cost the snapshot.
  if (node.host_slot >= 0) {
    append(out.state, backend.host_state(node.host_slot));
  } else {
    const auto passage = allocate_host_slot(now_ms);
    if (!passage) return std::nullopt;
    backend.store_state(node.slot, *passage);
    append(out.state, backend.host_state(*passage));
    tree_->pools.host_slots.release(*passage);
  }
  const std::vector<Node*> path = path_to(&node);
  for (const Node* at : path) {
    out.tokens.insert(out.tokens.end(), at->tokens.begin(), at->tokens.end());
    append_media(out.media, *at);
  }
  if (!read_pages(path, out.pages, now_ms)) return std::nullopt;
  return out;
}

/// Pages without a host copy pass through free host pages, as many at once as there are.
bool PrefixCache::read_pages(std::span<Node* const> path, std::vector<std::byte>& out,
                             double now_ms) {
  CacheStore& backend = tree_->backend;
  const auto on_device = [](const Node* at) { return at->host_page < 0; };
  const auto missing = static_cast<int32_t>(std::ranges::count_if(path, on_device));
  const int32_t passages = std::min(missing, std::max(tree_->pools.host_pages.free_count(), 1));
  const auto passage = allocate_host_pages(passages, now_ms);
  if (!passage) return false;
  for (auto at = path.begin(); at != path.end();) {
    std::vector<IdPair> stores;
    std::vector<int32_t> host_pages;
    for (; at != path.end(); ++at) {
      if (on_device(*at)) {
        if (stores.size() == passage->size()) break;
        stores.push_back({.from = (*at)->page, .to = (*passage)[stores.size()]});
      }
      host_pages.push_back(on_device(*at) ? stores.back().to : (*at)->host_page);
    }
    backend.move_pages(CacheMove::store, stores);
    for (const int32_t host_page : host_pages) append(out, backend.host_page(host_page));
  }
  tree_->pools.host_pages.release(*passage);
  return true;
}

PrefixCache::Restore PrefixCache::restore(const PrefixBytes& prefix, double now_ms) {
  CacheStore& backend = tree_->backend;
  const int32_t pages = static_cast<int32_t>(prefix.tokens.size()) / kPageTokens;
  const size_t page_bytes = static_cast<size_t>(backend.page_bytes());
  CHECK(pages > 0 && prefix.tokens.size() == static_cast<size_t>(pages) * kPageTokens,
        prefix.tokens.size(), " tokens are no whole pages");
  CHECK(prefix.pages.size() == static_cast<size_t>(pages) * page_bytes, "page bytes ",
        prefix.pages.size());
  CHECK(prefix.state.size() == static_cast<size_t>(backend.state_slot_bytes()), "state bytes ",
        prefix.state.size());
  const PrefixKey key{prefix.salt, prefix.tokens, prefix.media};
  const std::vector<Node*> known = tree_->find_path(key, pages);
  Cursor cursor(known.empty() ? &tree_->root(prefix.salt) : known.back());  // keeps the known part
  const auto on_host = [](const Node* node) { return node->page < 0; };
  const int32_t kept = static_cast<int32_t>(std::ranges::count_if(known, on_host));
  const int32_t missing = pages - static_cast<int32_t>(known.size());
  const bool has_state = missing == 0 && cursor.node_->has_snapshot();
  if (missing > available_host_pages() - kept) return Restore::no_room;
  if (!has_state && available_host_slots() < 1) return Restore::no_room;
  if (missing > 0) {
    std::vector<int32_t> fresh = *allocate_host_pages(missing, now_ms);
    Node* node = cursor.node_;
    for (const int32_t host_page : fresh) {
      const auto bytes = std::span(prefix.pages)
                             .subspan(static_cast<size_t>(node->depth) * page_bytes, page_bytes);
      std::ranges::copy(bytes, backend.host_page(host_page).begin());
      node = &tree_->add_child(*node, tree_->page_key(key, node->depth));
      node->page_reuse.touch(now_ms);
      tree_->give_host_page(*node, host_page);
    }
    cursor = Cursor(node);
  }
  Node& last = *cursor.node_;
  if (!last.has_snapshot()) {
    const int32_t host_slot = *allocate_host_slot(now_ms);
    std::ranges::copy(prefix.state, backend.host_state(host_slot).begin());
    last.state_reuse.touch(now_ms);
    tree_->give_snapshot(last, -1, host_slot, SnapshotPlace::pinned);
  } else {
    tree_->set_place(last, SnapshotPlace::pinned);
  }
  return Restore::done;
}

}  // namespace nibble
