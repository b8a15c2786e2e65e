// Places of images in given ids, once or for each row, and what stands in no place.
#include "cli/evaluating/scored_images.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

using Sequences = std::vector<std::vector<int32_t>>;
constexpr int32_t kToken = 9;
const VisionConfig kVision = {.merge = 2, .image_token = kToken};

std::vector<std::shared_ptr<const MediaPatches>> images(const std::vector<int32_t>& rows) {
  std::vector<std::shared_ptr<const MediaPatches>> all;
  for (const int32_t count : rows)
    all.push_back(std::make_shared<MediaPatches>(MediaPatches{.grid = {1, 2, 2 * count}}));
  return all;
}

TEST(ScoredImages, PlacesAreOneTokenOrOneForEachRow) {
  const Sequences expanded = {{1, 9, 9, 9, 2, 9, 9, 3}, {4, 5}, {9}};
  for (const Sequences& given : {Sequences{{1, 9, 2, 9, 3}, {4, 5}, {9}},
                                 Sequences{{1, 9, 9, 9, 2, 9, 3}, {4, 5}, {9}}, expanded}) {
    Sequences ids = given;
    const auto placed = place_in_ids(images({3, 2, 1}), kVision, ids).value();
    EXPECT_EQ(ids, expanded);
    ASSERT_EQ(placed.size(), 3U);
    ASSERT_EQ(placed[0].size(), 2U);
    EXPECT_EQ(placed[0][0].begin, 1);
    EXPECT_EQ(placed[0][1].begin, 5);
    EXPECT_EQ(placed[0][1].patches->grid.rows(2), 2);
    EXPECT_TRUE(placed[1].empty());
    ASSERT_EQ(placed[2].size(), 1U);
    EXPECT_EQ(placed[2][0].begin, 0);
  }
}

TEST(ScoredImages, OtherPlacesAreRefused) {
  struct Row {
    Sequences ids;
    std::vector<int32_t> rows;
    const char* words;
  };
  for (const Row& row : {
           Row{{{1, 2}}, {3}, "of token 9: expected 1, one for each --image, found 0"},
           Row{{{9, 1}, {9}}, {3}, "expected 1, one for each --image, found 2"},
           Row{{{9, 9, 9}}, {3, 3}, "expected 2, one for each --image, found 1"},
           Row{{{1}, {1, 9, 9}},
               {3},
               "sequence 1, position 1: expected one token 9 or 3, the rows of image 1, found 2"},
           Row{{{9, 1, 9, 9, 9, 9}}, {1, 3}, "the rows of image 2, found 4"},
       }) {
    Sequences ids = row.ids;
    const auto placed = place_in_ids(images(row.rows), kVision, ids);
    ASSERT_FALSE(placed.ok()) << row.words;
    EXPECT_NE(placed.error().message.find(row.words), std::string::npos) << placed.error().message;
  }
}

}  // namespace
}  // namespace nibble
