// Entries go as the definition says; making room among many entries costs little.
#include "engine/cache/media_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/concat.h"

namespace nibble {
namespace {

MediaKey key(uint64_t digest, int32_t rows) { return {.digest = {digest, 0}, .rows = rows}; }

TEST(MediaCache, TheLeastRecentlyUsedGoesFirst) {
  MediaCache cache(10);
  for (uint64_t i = 1; i <= 2; ++i) {
    const int32_t entry = cache.begin(key(i, 4), 0).value();
    EXPECT_FALSE(cache.find(key(i, 4)));
    cache.finish(entry);
    cache.release(entry);
  }
  cache.hold(*cache.find(key(1, 4)));
  cache.release(*cache.find(key(1, 4)));
  cache.release(cache.begin(key(3, 4), 0).value());
  EXPECT_TRUE(cache.find(key(1, 4)));
  EXPECT_FALSE(cache.find(key(2, 4)));
  EXPECT_EQ(cache.evicted(), 1);
}

TEST(MediaCache, WhatIsHeldStays) {
  MediaCache cache(10);
  const int32_t held = cache.begin(key(1, 8), 0).value();
  EXPECT_FALSE(cache.begin(key(2, 3), 0));
  EXPECT_TRUE(cache.begin(key(3, 2), 0));
  cache.drop(held);
  EXPECT_TRUE(cache.begin(key(2, 3), 0));
}

TEST(MediaCache, AWrongCountOfHoldersIsTold) {
  MediaCache cache(10);
  const int32_t entry = cache.begin(key(1, 8), 0).value();
  cache.check_integrity([](int32_t) { return 1; });
  EXPECT_DEATH(cache.check_integrity([](int32_t) { return 3; }),
               concat("media entry ", entry, " has 1 holders, not 3"));
}

TEST(MediaCache, ATenantBeyondItsShareLosesItsOwn) {
  MediaCache cache(12);
  const auto add = [&](uint64_t digest, int32_t rows, uint64_t tenant) {
    const int32_t entry = cache.begin(key(digest, rows), tenant).value();
    cache.finish(entry);
    cache.release(entry);
  };
  add(1, 3, 1);  // the oldest, of a tenant within its share
  add(2, 4, 2);
  add(3, 4, 2);
  add(4, 4, 2);
  EXPECT_TRUE(cache.find(key(1, 3)));
  EXPECT_FALSE(cache.find(key(2, 4)));
}

/// The definition, of idle entries alone: the tenants are those that have any, and the one that
/// asks.
class ByDefinition {
 public:
  explicit ByDefinition(int32_t rows) : rows_(rows) {}
  bool has(uint64_t digest) const { return std::ranges::count(digests(), digest) > 0; }
  void add(uint64_t digest, int32_t rows, uint64_t tenant) {
    std::set<uint64_t> tenants = {tenant};
    for (const One& one : entries_) tenants.insert(one.tenant);
    const int64_t share = rows_ / std::ssize(tenants);
    while (used() + rows > rows_) {
      auto gone = std::ranges::find_if(entries_, [&](const One& one) {
        return used_by(one.tenant) + (one.tenant == tenant ? rows : 0) > share;
      });
      entries_.erase(gone == entries_.end() ? entries_.begin() : gone);
    }
    entries_.push_back({digest, rows, tenant});
  }
  void use(uint64_t digest) {
    const auto found = std::ranges::find(entries_, digest, &One::digest);
    std::rotate(found, found + 1, entries_.end());
  }
  std::vector<uint64_t> digests() const {
    std::vector<uint64_t> all;
    for (const One& one : entries_) all.push_back(one.digest);
    return all;
  }

 private:
  struct One {
    uint64_t digest = 0;
    int32_t rows = 0;
    uint64_t tenant = 0;
  };
  int32_t used_by(uint64_t tenant) const {
    int32_t rows = 0;
    for (const One& one : entries_) rows += one.tenant == tenant ? one.rows : 0;
    return rows;
  }
  int32_t used() const {
    int32_t rows = 0;
    for (const One& one : entries_) rows += one.rows;
    return rows;
  }
  int32_t rows_;
  std::vector<One> entries_;  // the least recently used first
};

TEST(MediaCache, WhoGoesIsAsDefined) {
  constexpr int32_t kRows = 40;
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    MediaCache cache(kRows);
    ByDefinition expected(kRows);
    for (uint64_t digest = 1; digest < 100; ++digest) {
      const auto rows = static_cast<int32_t>(1 + random() % 12);
      const uint64_t tenant = random() % 4 * (random() % 2);
      const int32_t entry = cache.begin(key(digest, rows), tenant).value();
      expected.add(digest, rows, tenant);
      cache.finish(entry);
      cache.release(entry);
      const std::vector<uint64_t> kept = expected.digests();
      int32_t used = 0;
      for (uint64_t one = 1; one <= digest; ++one)
        for (int32_t size = 1; size <= 12; ++size)
          if (const auto found = cache.find(key(one, size))) {
            ASSERT_TRUE(expected.has(one)) << "seed " << seed << ", " << one << " at " << digest;
            used += size;
          }
      ASSERT_EQ(cache.used(), used);
      const uint64_t again = kept[random() % kept.size()];
      for (int32_t size = 1; size <= 12; ++size)
        if (const auto found = cache.find(key(again, size))) {
          cache.hold(*found);
          cache.release(*found);
        }
      expected.use(again);
      cache.check_integrity([](int32_t) { return 0; });
    }
  }
}

/// A full cache of images of one row each, of which many go for one: a walk over all for each that
/// goes would not end.
TEST(MediaCache, ManySmallEntriesCostLittle) {
  constexpr int32_t kRows = 20000;
  MediaCache cache(kRows);
  uint64_t digest = 0;
  for (int32_t i = 0; i < kRows; ++i) {
    ++digest;
    const int32_t entry = cache.begin(key(digest, 1), digest % 3).value();
    cache.finish(entry);
    cache.release(entry);
  }
  for (int round = 0; round < 3; ++round)
    cache.release(cache.begin(key(++digest, kRows / 2), 5).value());
  EXPECT_EQ(cache.evicted(), kRows / 2 + 2);  // then twice its own
}

}  // namespace
}  // namespace nibble
