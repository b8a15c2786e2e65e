// Runs of adjacent ids, and what one call may not ask.
#include "model/cache_moves.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

std::vector<IdRun> runs_of(std::vector<IdPair> pairs, CacheMove move = CacheMove::store) {
  return adjacent_runs(move, pairs);
}

TEST(CacheMovesTest, JoinsPairsThatAreAdjacentOnBothSides) {
  EXPECT_TRUE(runs_of({}).empty());
  EXPECT_EQ(runs_of({{4, 9}}), (std::vector<IdRun>{{4, 9, 1}}));
  EXPECT_EQ(runs_of({{4, 9}, {5, 10}, {6, 11}}), (std::vector<IdRun>{{4, 9, 3}}));
  EXPECT_EQ(runs_of({{6, 11}, {4, 9}, {5, 10}}), (std::vector<IdRun>{{4, 9, 3}}));
  EXPECT_EQ(runs_of({{4, 9}, {5, 11}}), (std::vector<IdRun>{{4, 9, 1}, {5, 11, 1}}));
  EXPECT_EQ(runs_of({{4, 9}, {6, 10}}), (std::vector<IdRun>{{4, 9, 1}, {6, 10, 1}}));
  EXPECT_EQ(runs_of({{5, 9}, {4, 10}}), (std::vector<IdRun>{{5, 9, 1}, {4, 10, 1}}));
  EXPECT_EQ(runs_of({{7, 0}, {7, 1}}), (std::vector<IdRun>{{7, 0, 1}, {7, 1, 1}}));
}

TEST(CacheMovesTest, JoinsIds) {
  EXPECT_EQ(adjacent_runs(std::vector<int32_t>{3, 1, 2, 7}),
            (std::vector<IdRun>{{1, 1, 3}, {7, 7, 1}}));
}

TEST(CacheMovesTest, RefusesWhatDependsOnTheOrder) {
  EXPECT_DEATH(runs_of({{1, 5}, {2, 5}}), "id 5 is written twice");
  EXPECT_DEATH(runs_of({{1, 2}, {2, 3}}, CacheMove::copy), "id 2 is read and written");
  EXPECT_DEATH(runs_of({{1, 1}}, CacheMove::copy), "id 1 is read and written");
  // The same numbers are ids of two pools here.
  EXPECT_EQ(runs_of({{1, 2}, {2, 3}}, CacheMove::load), (std::vector<IdRun>{{1, 2, 2}}));
}

}  // namespace
}  // namespace nibble
