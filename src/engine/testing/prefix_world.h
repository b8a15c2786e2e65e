// PrefixWorld, for tests: the pools, a FakeBackend and a cache, with pages and states whose bytes
// are a hash of the whole prefix they stand for, so that any mix-up is seen by reading them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/cache/prefix_cache.h"
#include "engine/testing/fake_backend.h"

namespace nibble {

struct Prompt {
  uint64_t salt = 0;
  std::vector<int32_t> tokens;
  std::vector<MediaSpan> media;
  PrefixKey key() const { return {salt, tokens, media}; }
  int32_t pages() const { return static_cast<int32_t>(tokens.size()) / kPageTokens; }
};

/// Whole pages, page i filled with `words[i]`, and 5 tokens more.
inline Prompt prompt_of(const std::vector<int32_t>& words, uint64_t salt = 0) {
  Prompt prompt;
  prompt.salt = salt;
  for (const int32_t word : words)
    prompt.tokens.insert(prompt.tokens.end(), static_cast<size_t>(kPageTokens), word);
  prompt.tokens.insert(prompt.tokens.end(), 5, 90);
  return prompt;
}

class PrefixWorld {
 public:
  explicit PrefixWorld(const PoolSizes& sizes, uint64_t hash_mask = ~0ULL)
      : pools(sizes), scratch_page_(sizes.host_pages), scratch_slot_(sizes.host_slots) {
    PoolSizes with_scratch = sizes;
    ++with_scratch.host_pages;
    ++with_scratch.host_slots;
    backend.reserve(with_scratch).value();
    cache = std::make_unique<PrefixCache>(pools, backend, PrefillCost{}, hash_mask);
  }

  /// The first `tokens` tokens as one number.
  static uint64_t identity(const Prompt& prompt, int32_t tokens) {
    uint64_t hash = FakeBackend::mix(77, prompt.salt);
    for (int32_t i = 0; i < tokens; ++i)
      hash = FakeBackend::mix(hash, static_cast<uint64_t>(prompt.tokens[static_cast<size_t>(i)]));
    for (const MediaSpan& span : prompt.media)
      if (span.begin < tokens)
        hash = FakeBackend::mix(FakeBackend::mix(hash, span.digest[0]), span.digest[1]);
    return hash;
  }

  void write_page(int32_t page, uint64_t value) {
    std::memcpy(backend.host_page(scratch_page_).data(), &value, sizeof(value));
    backend.load_page(scratch_page_, page);
  }
  uint64_t read_page(int32_t page) {
    uint64_t value = 0;
    backend.store_page(page, scratch_page_);
    std::memcpy(&value, backend.host_page(scratch_page_).data(), sizeof(value));
    return value;
  }
  void write_state(int32_t slot, uint64_t value) {
    std::memcpy(backend.host_state(scratch_slot_).data(), &value, sizeof(value));
    backend.load_state(scratch_slot_, slot);
  }
  uint64_t read_state(int32_t slot) {
    uint64_t value = 0;
    backend.store_state(slot, scratch_slot_);
    std::memcpy(&value, backend.host_state(scratch_slot_).data(), sizeof(value));
    return value;
  }

  /// Computes and publishes the prompt's pages from the cursor on; returns them, retained.
  std::vector<int32_t> publish(PrefixCache::Cursor& cursor, const Prompt& prompt, int32_t pages) {
    std::vector<int32_t> held;
    while (cache->tokens(cursor) < pages * kPageTokens) {
      const int32_t end = cache->tokens(cursor) + kPageTokens;
      const int32_t page = cache->allocate_pages(1, now_ms).value().front();
      write_page(page, identity(prompt, end));
      held.push_back(cache->extend(cursor, prompt.key(), page, now_ms));
      EXPECT_EQ(read_page(held.back()), identity(prompt, end));
    }
    return held;
  }
  void snapshot(const PrefixCache::Cursor& cursor, const Prompt& prompt,
                SnapshotPlace place = SnapshotPlace::boundary) {
    const int32_t slot = cache->allocate_slot(now_ms).value();
    write_state(slot, ~identity(prompt, cache->tokens(cursor)));
    cache->attach(cursor, slot, place, now_ms);
  }
  /// The prompt's first `pages` pages in the cache with a snapshot at their end, nothing held.
  void add(const Prompt& prompt, int32_t pages, SnapshotPlace place = SnapshotPlace::boundary) {
    PrefixCache::Cursor cursor = cache->root(prompt.salt);
    const std::vector<int32_t> held = publish(cursor, prompt, pages);
    snapshot(cursor, prompt, place);
    pools.pages.release(held);
  }
  /// Acquires and compares every byte; whether there was a hit.
  bool acquire_checked(const Prompt& prompt, int32_t tokens, int32_t slot,
                       std::vector<int32_t>& pages, PrefixCache::Cursor& cursor) {
    auto hit = cache->acquire(prompt.key(), tokens, slot, now_ms);
    if (!hit) return false;
    EXPECT_EQ(static_cast<int32_t>(hit->pages.size()), tokens / kPageTokens);
    for (size_t i = 0; i < hit->pages.size(); ++i)
      EXPECT_EQ(read_page(hit->pages[i]),
                identity(prompt, static_cast<int32_t>(i + 1) * kPageTokens));
    EXPECT_EQ(read_state(slot), ~identity(prompt, tokens));
    pages = std::move(hit->pages);
    cursor = std::move(hit->cursor);
    return true;
  }

  /// CHECKs all pools against the tree's own ids and those given, and spoils what is free.
  void check(PrefixCache::Owned others = {}) {
    cache->check_integrity(others);
    pools.pages.check_integrity(others.pages);
    pools.slots.check_integrity(others.slots);
    pools.host_pages.check_integrity(others.host_pages);
    pools.host_slots.check_integrity(others.host_slots);
    const auto free_of = [](const std::vector<int32_t>& used, int32_t size) {
      std::vector<uint8_t> taken(static_cast<size_t>(size));
      for (const int32_t id : used) taken[static_cast<size_t>(id)] = 1;
      std::vector<int32_t> free;
      for (int32_t id = 0; id < size; ++id)
        if (taken[static_cast<size_t>(id)] == 0) free.push_back(id);
      return free;
    };
    const auto spoil = [](std::span<std::byte> bytes) {  // fill() is slow in a test's code
      std::memset(bytes.data(), 0xEE, bytes.size());
    };
    for (const int32_t page : free_of(others.pages, pools.pages.size())) backend.poison_page(page);
    for (const int32_t slot : free_of(others.slots, pools.slots.size())) backend.poison_state(slot);
    for (const int32_t page : free_of(others.host_pages, pools.host_pages.size()))
      spoil(backend.host_page(page));
    for (const int32_t slot : free_of(others.host_slots, pools.host_slots.size()))
      spoil(backend.host_state(slot));
  }

  CachePools pools;
  FakeBackend backend;
  std::unique_ptr<PrefixCache> cache;
  double now_ms = 0.0;

 private:
  int32_t scratch_page_;
  int32_t scratch_slot_;
};

}  // namespace nibble
