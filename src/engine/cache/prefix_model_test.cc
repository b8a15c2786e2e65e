// Random walks of sequences over a PrefixCache with small pools, against the plainest model: the
// set of prefixes ever published. After every step all ids have exactly their owners, what is free
// is spoiled, and whatever a sequence holds has exactly the bytes of its prefix.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "engine/testing/prefix_world.h"

namespace nibble {
namespace {

/// tight: everything is evicted all the time. ample: nothing ever is, so the model is exact.
enum class Pools : uint8_t { tight, ample };

struct Tally {
  int64_t hits = 0, refused = 0, dedupes = 0, condemned = 0, cleared = 0, restored = 0;
  int64_t evicted = 0, states_evicted = 0, loaded = 0, states_loaded = 0;
};

struct HeldPage {
  int32_t page = -1;
  uint64_t value = 0;  // what it must hold
};

struct Member {  // a sequence
  Prompt prompt;
  PrefixCache::Cursor cursor;
  bool condemned = false;
  std::vector<HeldPage> pages;
  int32_t slot = -1;
};

class Walk {
 public:
  Walk(uint64_t seed, Pools pools, uint64_t hash_mask, Tally& tally)
      : tally_(tally), random_(seed), kind_(pools), world_(sizes(pools), hash_mask) {}
  ~Walk() {
    tally_.evicted += world_.cache->counters().pages_evicted;
    tally_.states_evicted += world_.cache->counters().snapshots_evicted;
    tally_.loaded += world_.cache->counters().pages_loaded;
    tally_.states_loaded += world_.cache->counters().states_loaded;
  }

  void run(int steps) {
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      world_.now_ms += static_cast<double>(below(200000));
      const int64_t version = world_.cache->version();
      one_step();
      EXPECT_GE(world_.cache->version(), version);  // what was there once never comes again
      check();
    }
  }

 private:
  PoolSizes sizes(Pools pools) {
    if (pools == Pools::ample)
      return {
          .pages = 400, .state_slots = 200, .rows_max = 64, .host_pages = 150, .host_slots = 60};
    return {.pages = 8 + below(12),
            .state_slots = 3 + below(5),
            .rows_max = 64,
            .host_pages = below(12),
            .host_slots = below(5)};
  }
  int32_t below(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint64_t>(n)); }

  Prompt random_prompt() {
    std::vector<int32_t> words;
    for (int32_t i = 1 + below(6); i > 0; --i) words.push_back(below(4) == 0 ? 2 : 1);
    Prompt prompt = prompt_of(words, below(4) == 0 ? 1 : 0);
    int32_t begin = below(200);
    while (below(6) == 0) {
      prompt.media.push_back({begin, 1 + below(100), {static_cast<uint64_t>(below(2)), 1}});
      begin = prompt.media.back().begin + prompt.media.back().count + below(50);
    }
    return prompt;
  }

  /// The model's name of a prefix: a deeper one begins with it.
  static std::string name(const Prompt& prompt, int32_t tokens) {
    std::string text(1, static_cast<char>('A' + prompt.salt));
    for (int32_t begin = 0; begin < tokens; begin += kPageTokens) {
      text += concat('.', prompt.tokens[static_cast<size_t>(begin)]);
      for (const MediaSpan& m : prompt.media)
        if (m.begin < begin + kPageTokens && m.begin + m.count > begin)
          text += concat('/', m.begin, '+', m.count, ':', m.digest[0]);
    }
    return text + '.';
  }

  void one_step() {
    const int32_t dice = below(100);
    if (dice < 25) return arrive();
    if (dice < 50) return compute();
    if (dice < 65) return snapshot();
    if (dice < 82) return leave();
    if (dice < 87) return let_go_of_part();
    if (dice < 94) return promises();
    if (dice < 96) return condemn();
    if (dice < 97) return clear();
    return read_and_restore();
  }

  void arrive() {
    if (members_.size() >= 4) leave();
    Member member;
    member.prompt = random_prompt();
    const Prompt& prompt = member.prompt;
    PrefixCache& cache = *world_.cache;
    const auto slot = cache.allocate_slot(world_.now_ms);
    if (!slot) return;
    member.slot = *slot;
    const int32_t size = static_cast<int32_t>(prompt.tokens.size());
    const int32_t limit = below(3) == 0 ? below(size + 1) : size;
    const auto match = cache.match(prompt.key(), limit);
    expect_match(prompt, match, limit);
    if (match.tokens > 0) {
      const int32_t missing = match.tokens / kPageTokens - match.device_pages;
      const int32_t available = cache.available_pages();
      const bool fits = missing <= available - match.idle_pages;
      std::vector<int32_t> pages;
      EXPECT_EQ(world_.acquire_checked(prompt, match.tokens, *slot, pages, member.cursor), fits);
      for (size_t i = 0; i < pages.size(); ++i)
        member.pages.push_back({pages[i], value(prompt, static_cast<int32_t>(i + 1))});
      ++(fits ? tally_.hits : tally_.refused);
      if (!fits) {
        EXPECT_EQ(available, cache.available_pages());
      }
    }
    if (!member.cursor) member.cursor = cache.root(prompt.salt);
    members_.push_back(std::move(member));
  }

  static uint64_t value(const Prompt& prompt, int32_t pages) {
    return PrefixWorld::identity(prompt, pages * kPageTokens);
  }

  void expect_match(const Prompt& prompt, const PrefixCache::Match& match, int32_t limit) {
    int32_t deepest = 0;
    int32_t known = 0;
    for (int32_t end = kPageTokens; end <= prompt.pages() * kPageTokens; end += kPageTokens) {
      if (pages_.contains(name(prompt, end))) known = end;
      if (snapshots_.contains(name(prompt, end)) && end <= limit) deepest = end;
    }
    EXPECT_TRUE(match.tokens == 0 || snapshots_.contains(name(prompt, match.tokens)));
    EXPECT_LE(match.tokens, deepest);
    EXPECT_LE(match.matched_tokens, known);
    if (kind_ == Pools::tight) return;
    EXPECT_EQ(match.tokens, deepest);
    EXPECT_EQ(match.matched_tokens, known);
  }

  Member* any() {
    if (members_.empty()) return nullptr;
    return &members_[static_cast<size_t>(below(static_cast<int32_t>(members_.size())))];
  }

  void compute() {
    Member* m = any();
    if (m == nullptr || !m->cursor) return;
    PrefixCache& cache = *world_.cache;
    for (int32_t count = 1 + below(3); count > 0; --count) {
      const int32_t end = cache.tokens(m->cursor) + kPageTokens;
      if (end > m->prompt.pages() * kPageTokens) return;
      const auto page = cache.allocate_pages(1, world_.now_ms);
      if (!page) return;
      const uint64_t content = PrefixWorld::identity(m->prompt, end);
      world_.write_page(page->front(), content);
      const int32_t own = cache.extend(m->cursor, m->prompt.key(), page->front(), world_.now_ms);
      if (own != page->front()) ++tally_.dedupes;
      m->pages.push_back({own, content});
      EXPECT_EQ(cache.tokens(m->cursor), end);
      if (!m->condemned) pages_.insert(name(m->prompt, end));
    }
  }

  void snapshot() {
    Member* m = any();
    if (m == nullptr || !m->cursor || world_.cache->tokens(m->cursor) == 0) return;
    PrefixCache& cache = *world_.cache;
    const auto slot = cache.allocate_slot(world_.now_ms);
    if (!slot) return;
    const int32_t tokens = cache.tokens(m->cursor);
    constexpr SnapshotPlace kPlaces[] = {SnapshotPlace::boundary, SnapshotPlace::junction,
                                         SnapshotPlace::generation, SnapshotPlace::pinned,
                                         SnapshotPlace::interval};  // the last may vanish
    world_.write_state(*slot, ~PrefixWorld::identity(m->prompt, tokens));
    const SnapshotPlace place = kPlaces[below(kind_ == Pools::ample ? 4 : 5)];
    cache.attach(m->cursor, *slot, place, world_.now_ms);
    EXPECT_EQ(cache.has_snapshot(m->cursor), !m->condemned);
    if (!m->condemned) snapshots_.insert(name(m->prompt, tokens));
  }

  void leave() {
    if (members_.empty()) return;
    const auto at = members_.begin() + below(static_cast<int32_t>(members_.size()));
    for (const HeldPage& held : at->pages) world_.pools.pages.release(held.page);
    world_.pools.slots.release(at->slot);
    members_.erase(at);
  }

  // As when swapped out, but any part: the cache must not rely on more than it says.
  void let_go_of_part() {
    Member* m = any();
    if (m == nullptr) return;
    if (below(2) == 0) {
      m->cursor = PrefixCache::Cursor();
    } else if (!m->pages.empty()) {
      HeldPage& at = m->pages[static_cast<size_t>(below(static_cast<int32_t>(m->pages.size())))];
      world_.pools.pages.release(at.page);
      at = m->pages.back();
      m->pages.pop_back();
    }
  }

  // As many pages and slots as the cache says are available can be had, and not one more.
  void promises() {
    PrefixCache& cache = *world_.cache;
    const int64_t version = cache.version();
    EXPECT_FALSE(cache.allocate_pages(cache.available_pages() + 1, 0).has_value());
    EXPECT_FALSE(cache.allocate_host_pages(cache.available_host_pages() + 1, 0).has_value());
    EXPECT_EQ(cache.version(), version);
    if (kind_ == Pools::ample) return;
    const int32_t dice = below(8);
    if (dice < 4) return take_device_pages();
    if (dice < 7) return take_all_slots();
    const int32_t wanted = below(cache.available_host_pages() + 1);
    const auto host = cache.allocate_host_pages(wanted, world_.now_ms);
    ASSERT_TRUE(host.has_value());
    world_.pools.host_pages.release(*host);
  }
  void take_device_pages() {
    PrefixCache& cache = *world_.cache;
    const int32_t available = cache.available_pages();
    const int32_t wanted = below(available + 1);
    const auto pages = cache.allocate_pages(wanted, world_.now_ms);
    ASSERT_TRUE(pages.has_value());
    EXPECT_EQ(cache.available_pages(), available - wanted);
    EXPECT_FALSE(cache.allocate_pages(available - wanted + 1, 0).has_value());
    world_.pools.pages.release(ballast_);
    ballast_.clear();
    if (below(2) == 0)
      ballast_ = *pages;
    else
      world_.pools.pages.release(*pages);
  }
  void take_all_slots() {
    PrefixCache& cache = *world_.cache;
    std::vector<int32_t> slots;
    const int32_t available = cache.available_slots();
    while (const auto slot = cache.allocate_slot(world_.now_ms)) slots.push_back(*slot);
    EXPECT_EQ(static_cast<int32_t>(slots.size()), available);
    for (const int32_t slot : slots) world_.pools.slots.release(slot);
    if (below(4) > 0) return;
    std::vector<int32_t> host;
    const int32_t available_host = cache.available_host_slots();
    while (const auto slot = cache.allocate_host_slot(world_.now_ms)) host.push_back(*slot);
    EXPECT_EQ(static_cast<int32_t>(host.size()), available_host);
    for (const int32_t slot : host) world_.pools.host_slots.release(slot);
  }

  void condemn() {
    Member* m = any();
    if (m == nullptr || !m->cursor) return;
    const bool acts = !m->condemned && world_.cache->tokens(m->cursor) > 0;
    world_.cache->condemn(m->cursor);
    EXPECT_FALSE(m->cursor);
    if (!acts) return;
    ++tally_.condemned;
    const std::string top = name(m->prompt, kPageTokens);
    for (Member& other : members_)
      if (other.cursor && world_.cache->tokens(other.cursor) > 0 &&
          name(other.prompt, kPageTokens) == top)
        other.condemned = true;
    const auto gone = [&](const std::string& path) { return path.starts_with(top.c_str()); };
    std::erase_if(pages_, gone);
    std::erase_if(snapshots_, gone);
    EXPECT_EQ(world_.cache->match(m->prompt.key(), 10000).matched_tokens, 0);
  }

  void clear() {
    ++tally_.cleared;
    world_.cache->clear();
    pages_.clear();
    snapshots_.clear();
    for (const Member& m : members_) {
      if (!m.cursor || m.condemned) continue;
      const int32_t tokens = world_.cache->tokens(m.cursor);
      for (int32_t end = kPageTokens; end <= tokens; end += kPageTokens)
        pages_.insert(name(m.prompt, end));
    }
  }

  void read_and_restore() {
    Member* m = any();
    if (m == nullptr || !m->cursor || m->condemned) return;
    PrefixCache& cache = *world_.cache;
    const int32_t tokens = cache.tokens(m->cursor);
    const bool had = cache.has_snapshot(m->cursor);
    EXPECT_EQ(cache.pin(m->cursor, world_.now_ms),
              had ? PrefixCache::Pin::done : PrefixCache::Pin::no_snapshot);
    const auto bytes = cache.read(m->cursor, world_.now_ms);
    if (!bytes) return;
    EXPECT_TRUE(had);
    for (int32_t i = 0; i < tokens / kPageTokens; ++i) {
      uint64_t content = 0;
      std::memcpy(&content,
                  bytes->pages.data() + static_cast<size_t>(i * world_.backend.page_bytes()),
                  sizeof(content));
      EXPECT_EQ(content, value(m->prompt, i + 1));
    }
    if (below(2) == 0) clear();
    if (cache.restore(*bytes, world_.now_ms) == PrefixCache::Restore::no_room) return;
    ++tally_.restored;
    snapshots_.insert(name(m->prompt, tokens));
    for (int32_t end = kPageTokens; end <= tokens; end += kPageTokens)
      pages_.insert(name(m->prompt, end));
    EXPECT_EQ(cache.match(m->prompt.key(), tokens).tokens, tokens);
  }

  void check() {
    PrefixCache::Owned others;
    others.pages = ballast_;
    for (const Member& m : members_) {
      others.slots.push_back(m.slot);
      for (const HeldPage& held : m.pages) others.pages.push_back(held.page);
    }
    world_.check(others);
    for (const Member& m : members_)
      for (const HeldPage& held : m.pages) EXPECT_EQ(world_.read_page(held.page), held.value);
  }

  Tally& tally_;
  std::mt19937_64 random_;
  Pools kind_;
  PrefixWorld world_;
  std::vector<Member> members_;  // their cursors go before the world
  std::vector<int32_t> ballast_;
  std::set<std::string> pages_;
  std::set<std::string> snapshots_;
};

Tally walk_all(uint64_t first_seed, uint64_t seeds, Pools pools, uint64_t hash_mask) {
  Tally tally;
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    SCOPED_TRACE(concat("seed ", seed));
    Walk(seed, pools, hash_mask, tally).run(150);
    if (::testing::Test::HasFailure()) break;
  }
  return tally;
}

TEST(PrefixModel, TightPoolsNeverMixAnythingUp) {
  const Tally tally = walk_all(1, 6000, Pools::tight, ~0ULL);
  EXPECT_GT(tally.hits, 10000);
  EXPECT_GT(tally.refused, 100);
  EXPECT_GT(tally.dedupes, 3000);
  EXPECT_GT(tally.condemned, 1000);
  EXPECT_GT(tally.cleared, 1000);
  EXPECT_GT(tally.restored, 500);
  EXPECT_GT(tally.evicted, 30000);
  EXPECT_GT(tally.states_evicted, 1000);
  EXPECT_GT(tally.loaded, 500);
  EXPECT_GT(tally.states_loaded, 1000);
}

TEST(PrefixModel, CollidingHashesChangeNothing) {
  EXPECT_GT(walk_all(100000, 500, Pools::tight, 1).hits, 1000);
}

TEST(PrefixModel, AmplePoolsFindExactlyWhatWasPublished) {
  const Tally tally = walk_all(200000, 200, Pools::ample, ~0ULL);
  EXPECT_GT(tally.hits, 1000);
  EXPECT_EQ(tally.evicted, 0);
}

}  // namespace
}  // namespace nibble
