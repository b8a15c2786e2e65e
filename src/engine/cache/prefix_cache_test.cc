// PrefixCache by example; prefix_model_test.cc has the random walks.
#include "engine/cache/prefix_cache.h"

#include <gtest/gtest.h>

#include "engine/testing/prefix_world.h"

namespace nibble {
namespace {

constexpr PoolSizes kAmple = {
    .pages = 32, .state_slots = 8, .rows_max = 64, .host_pages = 16, .host_slots = 4};

TEST(PrefixCache, FindsTheDeepestSnapshotWithinTheLimit) {
  PrefixWorld world(kAmple);
  const Prompt prompt = prompt_of({1, 2, 3, 4});
  world.add(prompt, 2);
  world.add(prompt, 3);
  EXPECT_EQ(world.cache->match(prompt.key(), 1000).tokens, 192);
  EXPECT_EQ(world.cache->match(prompt.key(), 191).tokens, 128);
  EXPECT_EQ(world.cache->match(prompt.key(), 127).tokens, 0);
  EXPECT_EQ(world.cache->match(prompt.key(), 191).matched_tokens, 192);
  EXPECT_EQ(world.cache->match(prompt_of({1, 2, 9}).key(), 1000).tokens, 128);
  EXPECT_EQ(world.cache->match(prompt_of({2, 2, 3}).key(), 1000).matched_tokens, 0);
  world.check();
}

TEST(PrefixCache, HitGivesPagesStateAndAPlaceToGoOn) {
  PrefixWorld world(kAmple);
  const Prompt prompt = prompt_of({1, 2, 3, 4});
  world.add(prompt, 3);
  const int32_t slot = world.cache->allocate_slot(0).value();
  std::vector<int32_t> pages;
  PrefixCache::Cursor cursor;
  ASSERT_TRUE(world.acquire_checked(prompt, 192, slot, pages, cursor));
  EXPECT_EQ(world.cache->tokens(cursor), 192);
  const auto more = world.publish(cursor, prompt, 4);
  EXPECT_EQ(world.cache->tokens(cursor), 256);
  EXPECT_EQ(world.cache->counters().hit_tokens, 192);
  pages.insert(pages.end(), more.begin(), more.end());
  world.check({.pages = pages, .slots = {slot}});
}

TEST(PrefixCache, EqualPagesAreKeptOnce) {
  PrefixWorld world(kAmple);
  const Prompt prompt = prompt_of({1, 2});
  PrefixCache::Cursor a = world.cache->root(0);
  PrefixCache::Cursor b = world.cache->root(0);
  auto held = world.publish(a, prompt, 2);
  const auto same = world.publish(b, prompt, 2);
  EXPECT_EQ(held, same);
  EXPECT_EQ(world.pools.pages.references(held[0]), 3);
  EXPECT_EQ(world.pools.pages.free_count(), 30);
  held.insert(held.end(), same.begin(), same.end());
  world.check({.pages = held});
}

TEST(PrefixCache, SaltAndMediaKeepPromptsApart) {
  PrefixWorld world(kAmple);
  Prompt cat = prompt_of({7, 7, 7});
  cat.media = {{.begin = 60, .count = 80, .digest = {1, 2}}};
  Prompt dog = cat;
  dog.media[0].digest = {1, 3};
  Prompt plain = cat;
  plain.media.clear();
  world.add(cat, 3);
  EXPECT_EQ(world.cache->match(cat.key(), 1000).tokens, 192);
  EXPECT_EQ(world.cache->match(dog.key(), 1000).matched_tokens, 0);
  EXPECT_EQ(world.cache->match(plain.key(), 1000).matched_tokens, 0);
  Prompt later = cat;
  later.media[0].begin = 70;  // the first page is plain, the second is not the same
  world.add(later, 2);
  EXPECT_EQ(world.cache->match(plain.key(), 1000).matched_tokens, 64);
  const Prompt other_tenant = prompt_of({7, 7, 7}, 5);
  EXPECT_EQ(world.cache->match(other_tenant.key(), 1000).matched_tokens, 0);
}

TEST(PrefixCache, CollidingHashesAreToldApartByTokens) {
  PrefixWorld world(kAmple, 0);  // every page has hash 0
  const Prompt a = prompt_of({1, 2});
  const Prompt b = prompt_of({3, 4});
  world.add(a, 2);
  EXPECT_EQ(world.cache->match(b.key(), 1000).matched_tokens, 0);
  world.add(b, 2);
  std::vector<int32_t> pages;
  PrefixCache::Cursor cursor;
  const int32_t slot = world.cache->allocate_slot(0).value();
  EXPECT_TRUE(world.acquire_checked(b, 128, slot, pages, cursor));
  world.check({.pages = pages, .slots = {slot}});
}

TEST(PrefixCache, EvictsToTheHostAndComesBackBitEqual) {
  PrefixWorld world(kAmple);
  const Prompt prompt = prompt_of({1, 2, 3});
  world.add(prompt, 3);
  EXPECT_EQ(world.cache->available_pages(), 32);
  const int64_t version = world.cache->version();
  const auto all = world.cache->allocate_pages(32, 1.0).value();
  EXPECT_GT(world.cache->version(), version);
  std::vector<int32_t> slots;
  while (const auto slot = world.cache->allocate_slot(1.0)) slots.push_back(*slot);
  EXPECT_EQ(slots.size(), 8U);
  world.check({.pages = all, .slots = slots});
  EXPECT_EQ(world.cache->counters().pages_stored, 3);
  EXPECT_EQ(world.cache->counters().states_stored, 1);
  const auto match = world.cache->match(prompt.key(), 1000);
  EXPECT_EQ(match.tokens, 192);
  EXPECT_EQ(match.device_pages, 0);
  EXPECT_FALSE(world.cache->acquire(prompt.key(), 192, slots[0], 2.0).has_value());
  world.pools.pages.release(all);
  std::vector<int32_t> pages;
  PrefixCache::Cursor cursor;
  EXPECT_TRUE(world.acquire_checked(prompt, 192, slots[0], pages, cursor));
  EXPECT_EQ(world.cache->counters().pages_loaded, 3);
  world.check({.pages = pages, .slots = slots});
}

TEST(PrefixCache, WithoutAHostTierEvictionForgets) {
  PrefixWorld world({.pages = 4, .state_slots = 2, .rows_max = 64});
  const Prompt prompt = prompt_of({1, 2, 3});
  world.add(prompt, 3);
  const auto two = world.cache->allocate_pages(2, 1.0).value();  // one was free
  EXPECT_EQ(world.cache->match(prompt.key(), 1000).matched_tokens, 128);
  EXPECT_EQ(world.cache->match(prompt.key(), 1000).tokens, 0);
  EXPECT_EQ(world.cache->available_slots(), 2);
  world.check({.pages = two});
}

TEST(PrefixCache, HeldPagesStay) {
  PrefixWorld world({.pages = 4, .state_slots = 4, .rows_max = 64});
  const Prompt prompt = prompt_of({1, 2, 3});
  PrefixCache::Cursor cursor = world.cache->root(0);
  auto held = world.publish(cursor, prompt, 3);
  EXPECT_EQ(world.cache->available_pages(), 1);
  EXPECT_FALSE(world.cache->allocate_pages(2, 0).has_value());
  cursor = PrefixCache::Cursor();
  EXPECT_EQ(world.cache->available_pages(), 1);  // the sequence holds the pages
  world.pools.pages.release(held[2]);
  held.pop_back();
  EXPECT_EQ(world.cache->available_pages(), 2);
  const auto pages = world.cache->allocate_pages(2, 0).value();
  held.insert(held.end(), pages.begin(), pages.end());
  world.check({.pages = held});
}

TEST(PrefixCache, HeldPageIsPassedOverThoughItIsTheCheapest) {
  PrefixWorld world({.pages = 4, .state_slots = 4, .rows_max = 64});
  const Prompt read_now = prompt_of({1});
  PrefixCache::Cursor cursor = world.cache->root(0);
  auto held = world.publish(cursor, read_now, 1);  // no snapshot: worth nothing
  cursor = PrefixCache::Cursor();
  world.now_ms = 1000;
  world.add(prompt_of({2}), 1);
  const auto rest = world.cache->allocate_pages(3, 2000).value();
  EXPECT_EQ(world.cache->available_pages(), 0);
  EXPECT_EQ(world.read_page(held[0]), PrefixWorld::identity(read_now, kPageTokens));
  held.insert(held.end(), rest.begin(), rest.end());
  world.check({.pages = held});
}

TEST(PrefixCache, HostCopiesOfWhatIsOnTheDeviceGoFirst) {
  PrefixWorld world(
      {.pages = 4, .state_slots = 4, .rows_max = 64, .host_pages = 2, .host_slots = 2});
  const Prompt away = prompt_of({1});
  const Prompt back = prompt_of({2});
  world.add(away, 1);
  world.add(back, 1);
  world.pools.pages.release(world.cache->allocate_pages(4, 0).value());  // both to the host
  const int32_t slot = world.cache->allocate_slot(0).value();
  std::vector<int32_t> pages;
  PrefixCache::Cursor cursor;
  ASSERT_TRUE(world.acquire_checked(back, 64, slot, pages, cursor));
  EXPECT_EQ(world.cache->available_host_pages(), 2);
  const auto host = world.cache->allocate_host_pages(1, 0).value();
  EXPECT_EQ(world.cache->match(away.key(), 1000).tokens, 64);
  EXPECT_EQ(world.cache->match(back.key(), 1000).tokens, 64);
  world.check({.pages = pages, .slots = {slot}, .host_pages = host});
}

TEST(PrefixCache, TheHostTierKeepsWhatIsWorthMore) {
  const PoolSizes sizes{
      .pages = 2, .state_slots = 4, .rows_max = 64, .host_pages = 1, .host_slots = 4};
  const Prompt away = prompt_of({1});
  const Prompt fresh = prompt_of({2});
  const auto survivor = [&](int uses_of_away, double fresh_ms) {
    PrefixWorld world(sizes);
    world.add(away, 1);
    for (int i = 1; i < uses_of_away; ++i) {
      const int32_t slot = world.cache->allocate_slot(0).value();
      std::vector<int32_t> pages;
      PrefixCache::Cursor cursor;
      EXPECT_TRUE(world.acquire_checked(away, 64, slot, pages, cursor));
      world.pools.pages.release(pages);
      world.pools.slots.release(slot);
    }
    const auto evict = [&] {
      world.pools.pages.release(world.cache->allocate_pages(2, world.now_ms).value());
    };
    evict();
    world.now_ms = fresh_ms;
    world.add(fresh, 1);
    evict();
    world.check();
    const auto known = [&](const Prompt& p) { return world.cache->match(p.key(), 1000).tokens; };
    EXPECT_EQ(known(away) + known(fresh), 64);  // the host has one page
    return known(away) > 0 ? 1 : 2;
  };
  // A use counts as much as a half-life of ten minutes.
  EXPECT_EQ(survivor(1, 0.0), 1);  // of equal worth: nothing is moved for nothing
  EXPECT_EQ(survivor(1, 1000.0), 2);
  EXPECT_EQ(survivor(2, 500000.0), 1);
  EXPECT_EQ(survivor(2, 700000.0), 2);
}

TEST(PrefixCache, UselessPagesGoFirstThenTheCheapest) {
  PrefixWorld world({.pages = 6, .state_slots = 8, .rows_max = 64});
  world.add(prompt_of({1, 2}), 2);
  world.now_ms = 1000;
  world.add(prompt_of({3}), 1, SnapshotPlace::interval);
  world.now_ms = 2000;
  PrefixCache::Cursor cursor = world.cache->root(0);
  const Prompt bare = prompt_of({5, 6});
  world.pools.pages.release(world.publish(cursor, bare, 2));
  cursor = PrefixCache::Cursor();
  const auto known = [&](const Prompt& p) {
    return world.cache->match(p.key(), 1000).matched_tokens;
  };
  auto held = world.cache->allocate_pages(2, 3000).value();  // newest, but no snapshot needs it
  EXPECT_EQ(known(bare), 64);
  auto more = world.cache->allocate_pages(2, 3000).value();
  EXPECT_EQ(known(bare), 0);
  EXPECT_EQ(known(prompt_of({3})), 0);  // interval
  EXPECT_EQ(known(prompt_of({1, 2})), 128);
}

TEST(PrefixCache, UsedAndPinnedSnapshotsOutliveOthers) {
  PrefixWorld world({.pages = 16, .state_slots = 4, .rows_max = 64});
  const Prompt pinned = prompt_of({1});
  const Prompt used = prompt_of({2});
  const Prompt fresh = prompt_of({3});
  world.add(pinned, 1, SnapshotPlace::pinned);
  world.add(used, 1);
  for (int i = 0; i < 3; ++i) {
    const int32_t slot = world.cache->allocate_slot(0).value();
    std::vector<int32_t> pages;
    PrefixCache::Cursor cursor;
    ASSERT_TRUE(world.acquire_checked(used, 64, slot, pages, cursor));
    world.pools.pages.release(pages);
    world.pools.slots.release(slot);
  }
  world.now_ms = 1000;
  world.add(fresh, 1);
  const auto hit = [&](const Prompt& p) { return world.cache->match(p.key(), 1000).tokens > 0; };
  std::vector<int32_t> slots = {world.cache->allocate_slot(2000).value()};
  slots.push_back(world.cache->allocate_slot(2000).value());
  EXPECT_FALSE(hit(fresh));
  EXPECT_TRUE(hit(used));
  slots.push_back(world.cache->allocate_slot(2000).value());
  EXPECT_FALSE(hit(used));
  EXPECT_TRUE(hit(pinned));
  EXPECT_EQ(world.cache->available_slots(), 1);
  world.check({.slots = slots});
}

/// One that was taken for another reason; then newer ones go before it.
TEST(PrefixCache, ASnapshotCanBePinnedLater) {
  PrefixWorld world({.pages = 16, .state_slots = 2, .rows_max = 64});
  const Prompt pinned = prompt_of({1});
  PrefixCache::Cursor cursor = world.cache->root(0);
  world.pools.pages.release(world.publish(cursor, pinned, 1));
  world.snapshot(cursor, pinned);
  EXPECT_EQ(world.cache->pin(cursor, 0), PrefixCache::Pin::done);
  cursor = PrefixCache::Cursor();
  world.now_ms = 1e7;
  world.add(prompt_of({2}), 1);
  const int32_t slot = world.cache->allocate_slot(world.now_ms).value();
  EXPECT_EQ(world.cache->match(pinned.key(), 1000).tokens, 64);
  EXPECT_EQ(world.cache->match(prompt_of({2}).key(), 1000).tokens, 0);
  world.check({.slots = {slot}});
}

TEST(PrefixCache, IntervalSnapshotsGoWhenADeeperOneComesUnlessUsed) {
  for (const int uses : {0, 1}) {
    PrefixWorld world(kAmple);
    const Prompt prompt = prompt_of({1, 2, 3});
    world.add(prompt, 1, SnapshotPlace::interval);
    world.add(prompt, 2, SnapshotPlace::interval);
    EXPECT_EQ(world.cache->match(prompt.key(), 64).tokens, 64);  // intervals do not replace
    if (uses > 0) {
      const int32_t slot = world.cache->allocate_slot(0).value();
      auto hit = world.cache->acquire(prompt.key(), 64, slot, 0);
      world.pools.pages.release(hit->pages);
      world.pools.slots.release(slot);
    }
    world.add(prompt, 3);
    EXPECT_EQ(world.cache->match(prompt.key(), 191).tokens, uses > 0 ? 64 : 0);
    EXPECT_EQ(world.cache->match(prompt.key(), 192).tokens, 192);
    world.check();
  }
}

TEST(PrefixCache, SecondSnapshotOfAPlaceIsReturned) {
  PrefixWorld world(kAmple);
  const Prompt prompt = prompt_of({1});
  world.add(prompt, 1);
  world.add(prompt, 1);
  EXPECT_EQ(world.pools.slots.free_count(), 7);
  world.check();
}

TEST(PrefixCache, CondemnedPathsAreNotFoundAndGoWithTheirHolders) {
  PrefixWorld world(kAmple);
  const Prompt prompt = prompt_of({1, 2, 3});
  world.add(prompt, 2);
  const int32_t slot = world.cache->allocate_slot(0).value();
  std::vector<int32_t> pages;
  PrefixCache::Cursor sick;
  PrefixCache::Cursor neighbour;
  ASSERT_TRUE(world.acquire_checked(prompt, 128, slot, pages, sick));
  std::vector<int32_t> others;
  ASSERT_TRUE(world.acquire_checked(prompt, 128, slot, others, neighbour));
  world.cache->condemn(sick);
  EXPECT_FALSE(sick);
  EXPECT_EQ(world.cache->match(prompt.key(), 1000).matched_tokens, 0);
  const auto more = world.publish(neighbour, prompt, 3);
  world.snapshot(neighbour, prompt);
  EXPECT_FALSE(world.cache->has_snapshot(neighbour));
  EXPECT_EQ(world.cache->match(prompt.key(), 1000).matched_tokens, 0);
  world.pools.pages.release(pages);
  world.pools.pages.release(others);
  world.pools.pages.release(more);
  EXPECT_EQ(world.pools.pages.free_count(), 29);  // the other sequence's cursor keeps them
  world.add(prompt, 1);                           // computed anew, beside the condemned path
  EXPECT_EQ(world.cache->match(prompt.key(), 1000).tokens, 64);
  neighbour = PrefixCache::Cursor();
  EXPECT_EQ(world.pools.pages.free_count(), 31);
  world.check({.slots = {slot}});
}

TEST(PrefixCache, RestoresAPinnedPrefixIntoHostMemory) {
  PrefixWorld first(kAmple);
  Prompt prompt = prompt_of({1, 2, 3}, 9);
  prompt.media = {{.begin = 10, .count = 100, .digest = {4, 5}},
                  {.begin = 120, .count = 2, .digest = {6, 7}}};
  PrefixCache::Cursor cursor = first.cache->root(9);
  first.pools.pages.release(first.publish(cursor, prompt, 3));
  EXPECT_EQ(first.cache->pin(cursor, 0), PrefixCache::Pin::no_snapshot);
  EXPECT_FALSE(first.cache->read(cursor, 0).has_value());
  first.snapshot(cursor, prompt);
  EXPECT_EQ(first.cache->pin(cursor, 0), PrefixCache::Pin::done);
  const PrefixBytes bytes = first.cache->read(cursor, 0).value();
  ASSERT_EQ(bytes.media.size(), 2U);
  EXPECT_EQ(bytes.media[1].begin, 120);

  PrefixWorld second(kAmple);
  ASSERT_EQ(second.cache->restore(bytes, 0), PrefixCache::Restore::done);
  ASSERT_EQ(second.cache->restore(bytes, 0), PrefixCache::Restore::done);  // changes nothing
  EXPECT_EQ(second.cache->available_pages(), 32);
  EXPECT_EQ(second.pools.host_pages.free_count(), 13);
  const int32_t slot = second.cache->allocate_slot(0).value();
  std::vector<int32_t> pages;
  PrefixCache::Cursor at;
  EXPECT_TRUE(second.acquire_checked(prompt, 192, slot, pages, at));
  second.check({.pages = pages, .slots = {slot}});

  PrefixWorld small(
      {.pages = 8, .state_slots = 2, .rows_max = 64, .host_pages = 2, .host_slots = 1});
  EXPECT_EQ(small.cache->restore(bytes, 0), PrefixCache::Restore::no_room);
  small.check();
}

/// When two that were restored do not both fit any more, the one that was restored later stays.
TEST(PrefixCache, RestoringCountsAsUse) {
  PrefixWorld first(kAmple);
  std::vector<PrefixBytes> prefixes;
  for (const int32_t word : {1, 2, 3}) {
    PrefixCache::Cursor cursor = first.cache->root(0);
    const Prompt prompt = prompt_of({word});
    first.pools.pages.release(first.publish(cursor, prompt, 1));
    first.snapshot(cursor, prompt);
    prefixes.push_back(first.cache->read(cursor, 0).value());
  }
  constexpr PoolSizes kFewPages = {
      .pages = 8, .state_slots = 2, .rows_max = 64, .host_pages = 2, .host_slots = 3};
  constexpr PoolSizes kFewSlots = {
      .pages = 8, .state_slots = 2, .rows_max = 64, .host_pages = 3, .host_slots = 2};
  for (const auto& [sizes, later] :
       {std::pair(kFewPages, 0), {kFewPages, 1}, {kFewSlots, 0}, {kFewSlots, 1}}) {
    PrefixWorld second(sizes);
    for (const int32_t i : {0, 1}) {
      const double now_ms = i == later ? 2e6 : 1e6;
      EXPECT_EQ(second.cache->restore(prefixes[static_cast<size_t>(i)], now_ms),
                PrefixCache::Restore::done);
    }
    EXPECT_EQ(second.cache->restore(prefixes[2], 3e6), PrefixCache::Restore::done);
    for (const int32_t i : {0, 1})
      EXPECT_EQ(second.cache->match(prompt_of({i + 1}).key(), 64).tokens, i == later ? 64 : 0);
    second.check();
  }
}

TEST(PrefixCache, ClearKeepsOnlyWhatCursorsHold) {
  PrefixWorld world(kAmple);
  const Prompt prompt = prompt_of({1, 2, 3});
  world.add(prompt, 3, SnapshotPlace::pinned);
  {
    PrefixCache::Cursor cursor = world.cache->root(0);
    const auto held = world.publish(cursor, prompt, 1);
    world.cache->clear();
    EXPECT_EQ(world.cache->match(prompt.key(), 1000).matched_tokens, 64);
    EXPECT_EQ(world.cache->match(prompt.key(), 1000).tokens, 0);
    world.check({.pages = held});
    world.pools.pages.release(held);
  }
  world.cache->clear();
  EXPECT_EQ(world.pools.pages.free_count(), 32);
  EXPECT_EQ(world.pools.slots.free_count(), 8);
}

TEST(PrefixCacheDeathTest, CursorMustNotOutliveTheCache) {
  const auto outlive = [] {
    PrefixWorld world(kAmple);
    PrefixCache::Cursor cursor = world.cache->root(0);
    world.cache.reset();
  };
  EXPECT_DEATH(outlive(), "outlive the cache");
}

}  // namespace
}  // namespace nibble
