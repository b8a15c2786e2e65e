// Tables of the places where snapshots are taken.
#include "engine/cache/snapshot_plan.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

std::vector<int32_t> places(const CacheRequest& request, int32_t prompt, int32_t cached,
                            int32_t known) {
  std::vector<int32_t> tokens;
  for (const PlannedSnapshot& place : plan_snapshots(request, prompt, cached, known))
    tokens.push_back(place.tokens);
  return tokens;
}

TEST(SnapshotPlan, EndsAtWholePages) {
  using Places = std::vector<int32_t>;
  EXPECT_EQ(places({}, 63, 0, 0), Places{});
  EXPECT_EQ(places({}, 64, 0, 0), Places{64});
  EXPECT_EQ(places({}, 300, 0, 0), Places{256});
  EXPECT_EQ(places({}, 320, 0, 0), (Places{256, 320}));
  EXPECT_EQ(places({}, 300, 256, 0), Places{});
  EXPECT_EQ(places({.boundaries = {130, 200}}, 300, 0, 0), (Places{128, 192, 256}));
  EXPECT_EQ(places({.boundaries = {130, 200}}, 300, 128, 0), (Places{192, 256}));
  EXPECT_EQ(places({.boundaries = {130, 140, 9000}}, 300, 0, 0), (Places{128, 256}));
  EXPECT_EQ(places({}, 300, 64, 192), (Places{192, 256}));  // a junction
  EXPECT_EQ(places({.pinned_tokens = 100}, 300, 0, 0), (Places{64, 256}));
}

TEST(SnapshotPlan, LongPromptsLeaveIntervals) {
  const auto made = plan_snapshots({}, 20000, 0, 0);
  ASSERT_EQ(made.size(), 3U);
  EXPECT_EQ(made[0].tokens, 8192);
  EXPECT_EQ(made[0].place, SnapshotPlace::interval);
  EXPECT_EQ(made[1].tokens, 16384);
  EXPECT_EQ(made[2].tokens, 19968);
  EXPECT_EQ(made[2].place, SnapshotPlace::boundary);
}

TEST(SnapshotPlan, KeepsToItsBudgetAndDropsTheLeastUseful) {
  CacheRequest request{.pinned_tokens = 640};
  for (int32_t i = 1; i <= 20; ++i) request.boundaries.push_back(64 * i);
  const auto made = plan_snapshots(request, 10000, 0, 5000);
  EXPECT_EQ(made.size(), 7U);  // 6 + 1
  for (const PlannedSnapshot& place : made) {
    EXPECT_NE(place.place, SnapshotPlace::interval);
    EXPECT_NE(place.place, SnapshotPlace::junction);
  }
  EXPECT_EQ(made.back().tokens, 9984);  // where the next turn goes on
}

}  // namespace
}  // namespace nibble
