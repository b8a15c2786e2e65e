// Rows sorted by expert: ascending within each, cut into tiles, found again by each row.
#include "backend/cuda/gradient/expert_rows.h"

#include <gtest/gtest.h>

#include <random>

namespace nibble::cuda {
namespace {

TEST(ExpertRows, AreSortedByHandAsHere) {
  const std::vector<int32_t> chosen = {2, 0, 0, 3, 3, 2};  // two choices of three rows
  const std::vector<float> weights = {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F};
  const ExpertRows found = sort_by_expert(chosen, weights, 2, 4);
  EXPECT_EQ(found.begin, (std::vector<int32_t>{0, 2, 2, 4, 6}));
  EXPECT_EQ(found.row, (std::vector<int32_t>{0, 1, 0, 2, 1, 2}));
  EXPECT_EQ(found.expert, (std::vector<int32_t>{0, 0, 2, 2, 3, 3}));
  EXPECT_EQ(found.weight, (std::vector<float>{0.2F, 0.3F, 0.1F, 0.6F, 0.4F, 0.5F}));
  EXPECT_EQ(found.slots, (std::vector<int32_t>{0, 2, 1, 4, 3, 5}));
  ASSERT_EQ(found.tiles.size(), 3U);
  EXPECT_EQ(found.tiles[1].expert, 2);
  EXPECT_EQ(found.tiles[1].begin, 2);
  EXPECT_EQ(found.tiles[1].count, 2);
}

TEST(ExpertRows, TilesCoverEveryAssignmentOnce) {
  constexpr int32_t kRows = 700, kChoices = 3, kExperts = 5;
  std::mt19937 random(7);
  std::vector<int32_t> chosen;
  for (int32_t r = 0; r < kRows; ++r) {
    const auto first = static_cast<int32_t>(random() % kExperts);
    for (int32_t k = 0; k < kChoices; ++k) chosen.push_back((first + k) % kExperts);
  }
  const std::vector<float> weights(chosen.size(), 1.0F);
  const ExpertRows found = sort_by_expert(chosen, weights, kChoices, kExperts);
  int32_t next = 0;
  for (const ExpertTile& tile : found.tiles) {
    EXPECT_EQ(tile.begin, next);
    EXPECT_GT(tile.count, 0);
    EXPECT_LE(tile.count, kTileTokens);
    next += tile.count;
    for (int32_t a = tile.begin; a < next; ++a)
      EXPECT_EQ(found.expert[static_cast<size_t>(a)], tile.expert);
  }
  EXPECT_EQ(next, kRows * kChoices);
  for (size_t i = 0; i < found.slots.size(); ++i)
    EXPECT_EQ(found.row[static_cast<size_t>(found.slots[i])], static_cast<int32_t>(i) / kChoices);
}

}  // namespace
}  // namespace nibble::cuda
