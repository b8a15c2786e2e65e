// The twins of a device's caches in host memory: their places are apart and of their sizes; and
// the comparison of what was planned with what was reserved.
#include "model/host_pools.h"

#include <gtest/gtest.h>

#include <limits>

#include "model/reserved_bytes.h"

namespace nibble {
namespace {

PoolSizes sizes() {
  PoolSizes made;
  made.host_pages = 3;
  made.host_slots = 2;
  made.replay_rows = 5;
  made.host_media_rows = 4;
  return made;
}
constexpr HostPools::Bytes kBytes{.page = 64, .state = 32, .replay_row = 16, .media_row = 24};

TEST(HostPools, PlacesAreApartAndOfTheirSizes) {
  HostPools pools(sizes(), kBytes);
  std::vector<std::span<std::byte>> places;
  for (int32_t id = 0; id < 3; ++id) places.push_back(pools.page(id));
  for (int32_t id = 0; id < 2; ++id) places.push_back(pools.state(id));
  for (int32_t id = 0; id < 4; ++id) places.push_back(pools.media(id));
  const std::vector<size_t> expected = {64, 64, 64, 112, 112, 24, 24, 24, 24};
  for (size_t i = 0; i < places.size(); ++i) {
    ASSERT_EQ(places[i].size(), expected[i]) << i;
    std::ranges::fill(places[i], static_cast<std::byte>(i + 1));
  }
  for (size_t i = 0; i < places.size(); ++i)
    for (const std::byte byte : places[i]) ASSERT_EQ(byte, static_cast<std::byte>(i + 1)) << i;
  EXPECT_EQ(pools.page(1).data(), places[1].data());
}

TEST(HostPoolsDeathTest, HasNoOtherPlaces) {
  HostPools pools(sizes(), kBytes);
  EXPECT_DEATH(pools.page(-1), "host id -1");
  EXPECT_DEATH(pools.page(3), "host id 3 of 192 bytes, 64 each");
  EXPECT_DEATH(pools.state(2), "host id 2 of 224 bytes, 112 each");
  EXPECT_DEATH(pools.media(4), "host id 4 of 96 bytes, 24 each");
}

TEST(HostPools, MediaRowsAreStoredAndLoadedAgain) {
  HostPools pools(sizes(), kBytes);
  std::array<std::array<float, 6>, 3> device = {};
  for (size_t row = 0; row < device.size(); ++row) device[row].fill(static_cast<float>(row + 1));
  const auto row = [&](int32_t id) { return device[static_cast<size_t>(id)].data(); };
  const std::vector<IdPair> there = {{.from = 0, .to = 3}, {.from = 2, .to = 1}};
  pools.move_media(CacheMove::store, there, row);
  for (auto& each : device) each.fill(0);
  const std::vector<IdPair> back = {{.from = 3, .to = 1}, {.from = 1, .to = 0}};
  pools.move_media(CacheMove::load, back, row);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(device[0][i], 3.0F);
    EXPECT_EQ(device[1][i], 1.0F);
    EXPECT_EQ(device[2][i], 0.0F);
  }
}

TEST(HostPools, FiniteIsWhatIsNeitherInfiniteNorNaN) {
  constexpr float kMax = std::numeric_limits<float>::max();
  EXPECT_TRUE(all_finite({}));
  EXPECT_TRUE(all_finite(std::vector<float>{0, -0.0F, kMax, -kMax, 1e-45F}));
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()})
    for (size_t at = 0; at < 3; ++at) {
      std::vector<float> values(3, kMax);
      values[at] = bad;
      EXPECT_FALSE(all_finite(values)) << bad << at;
    }
}

TEST(ReservedBytes, APartThatDiffersIsNamedWithBothNumbers) {
  const ReservedBytes planned{
      .weights = 1, .tables = 2, .pages = 4, .states = 8, .workspace = 16, .media = 32};
  EXPECT_EQ(planned.total(), 63);
  ReservedBytes mapped = planned;
  mapped.mapped = 99;
  EXPECT_TRUE(check_reserved(planned, mapped, "at start").ok());
  const std::pair<int64_t ReservedBytes::*, const char*> kParts[] = {
      {&ReservedBytes::weights, "weights: expected 1 bytes, as planned, found 101 reserved"},
      {&ReservedBytes::tables, "rotary tables: expected 2 bytes"},
      {&ReservedBytes::pages, "KV pages: expected 4 bytes"},
      {&ReservedBytes::states, "states: expected 8 bytes"},
      {&ReservedBytes::workspace, "workspace: expected 16 bytes"},
      {&ReservedBytes::media, "memory of media: expected 32 bytes"}};
  for (const auto& [part, words] : kParts) {
    ReservedBytes reserved = planned;
    reserved.*part += 100;
    const auto refused = check_reserved(planned, reserved, "at start");
    ASSERT_FALSE(refused.ok()) << words;
    EXPECT_EQ(refused.error().code, ErrorCode::internal);
    EXPECT_NE(refused.error().message.find(concat("wrong at start: ", words)), std::string::npos)
        << refused.error().message;
  }
}

}  // namespace
}  // namespace nibble
