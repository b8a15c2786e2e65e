// Every byte of a page or slot is the same number, a different one for each.
#include "testing/cache_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace nibble {
namespace {

constexpr int32_t kIds = 12;

/// One of the two pools, with its counterpart in host memory.
struct Pool {
  Backend& backend;
  enum class Kind : uint8_t { pages, states } kind;

  std::span<std::byte> host(int32_t id) const {
    return kind == Kind::pages ? backend.host_page(id) : backend.host_state(id);
  }
  void fill(int32_t id, int number) const {
    std::ranges::fill(host(id), static_cast<std::byte>(number));
  }
  void move(CacheMove how, const std::vector<IdPair>& ids) const {
    kind == Kind::pages ? backend.move_pages(how, ids) : backend.move_states(how, ids);
  }
  void expect(int32_t id, int number) const {
    EXPECT_TRUE(std::ranges::all_of(
        host(id), [&](std::byte found) { return found == static_cast<std::byte>(number); }))
        << (kind == Kind::pages ? "page " : "slot ") << id << ": "
        << static_cast<int>(host(id).front()) << ", expected " << number;
  }
  /// Copies everything on the device to the host ids of the same numbers.
  void fetch() const {
    std::vector<IdPair> all;
    for (int32_t id = 0; id < kIds; ++id) {
      fill(id, 0xEE);
      all.push_back({.from = id, .to = id});
    }
    move(CacheMove::store, all);
  }
};

void expect_many(const Pool& pool) {
  std::vector<IdPair> loads;
  for (int32_t id = 0; id < kIds; ++id) {
    pool.fill(id, 1 + id);
    // In pairs that are neighbours on both sides.
    loads.push_back({.from = id, .to = id ^ 2});
  }
  pool.move(CacheMove::load, loads);
  pool.move(CacheMove::copy, {{.from = 0, .to = 7}, {.from = 0, .to = 4}, {.from = 1, .to = 5}});
  pool.move(CacheMove::copy, {});
  pool.fetch();
  for (int32_t id = 0; id < kIds; ++id) {
    const int32_t copied_from = id == 7 || id == 4 ? 0 : id == 5 ? 1 : id;
    pool.expect(id, 1 + (copied_from ^ 2));
  }
}

}  // namespace

void expect_cache_moves(Backend& backend) {
  backend
      .reserve({.pages = kIds,
                .state_slots = kIds,
                .rows_max = 8,
                .host_pages = kIds,
                .host_slots = kIds})
      .value();
  if (backend.page_bytes() > 0) expect_many({.backend = backend, .kind = Pool::Kind::pages});
  if (backend.state_slot_bytes() == 0) return;
  const Pool states{.backend = backend, .kind = Pool::Kind::states};
  expect_many(states);
  const std::vector<int32_t> zeroed = {9, 3, 4};
  backend.zero_states(zeroed);
  states.fetch();
  for (const int32_t id : zeroed) states.expect(id, 0);
  states.expect(2, 1);
  states.expect(10, 9);
}

}  // namespace nibble
