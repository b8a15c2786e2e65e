// The rows of a draft step by step, and the choice of a token.
#include "model/draft.h"

#include <gtest/gtest.h>

#include <limits>

namespace nibble {
namespace {

TEST(BestToken, IsTheFirstOfTheBestThatAreAllowed) {
  const std::vector<float> logits = {1, 5, -2, 5, 4};
  EXPECT_EQ(best_token(logits, {}), 1);
  const std::vector<uint32_t> late = {0b11100}, last = {0b10000}, none = {0};
  EXPECT_EQ(best_token(logits, late), 3);
  EXPECT_EQ(best_token(logits, last), 4);
  EXPECT_EQ(best_token(logits, none), -1);
  const std::vector<float> low = {-7, -3}, falling = {9, 5};
  EXPECT_EQ(best_token(low, {}), 1);
  EXPECT_EQ(best_token(falling, {}), 0);
}

TEST(BestToken, IsNoneOfLogitsThatAreNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    const std::vector<float> logits = {1, bad, 3};
    EXPECT_EQ(best_token(logits, {}), -1);
    const std::vector<uint32_t> others = {0b101};
    EXPECT_EQ(best_token(logits, others), 2);  // rows that no token has may hold anything
  }
}

TEST(DraftStep, GoesOnWithWhatWasDraftedAtTheNextPlaces) {
  const DraftBatch batch = {
      .sequences = {{.kv_begin = 70,
                     .page_begin = 0,
                     .page_count = 2,
                     .token = 11,
                     .position_before = {40, 42, 43},
                     .position = 50,
                     .count = 3},
                    {.kv_begin = 1, .page_begin = 2, .page_count = 1, .token = 12, .count = 2}},
      .pages = {5, 6, 7}};
  const std::vector<int32_t> drafted = {21, 22, -1, 31, -1, -1};
  const Batch first = draft_step(batch, 0, drafted);
  EXPECT_EQ(first.tokens, (std::vector<int32_t>{11, 12}));
  EXPECT_EQ(first.positions, (std::vector<int32_t>{40, 0, 42, 0, 43, 0}));
  const Batch second = draft_step(batch, 1, drafted);
  EXPECT_EQ(second.tokens, (std::vector<int32_t>{21, 31}));
  EXPECT_EQ(second.positions, (std::vector<int32_t>{50, 0, 50, 0, 50, 0}));
  EXPECT_EQ(second.sequences[1].kv_begin, 2);
  EXPECT_EQ(second.sequences[1].page_begin, 2);
  const Batch third = draft_step(batch, 2, drafted);
  EXPECT_EQ(third.tokens, std::vector<int32_t>{22});
  EXPECT_EQ(third.positions, (std::vector<int32_t>{51, 51, 51}));
  EXPECT_EQ(third.sequences[0].kv_begin, 72);
}

TEST(PositionBefore, IsTheRowsBeforeOrThatOfTheChunkBefore) {
  const Batch batch = {.tokens = {1, 2, 3}, .positions = {7, 8, 9, 17, 18, 19, 27, 28, 29}};
  const BatchSequence sequence{.row_begin = 1, .row_count = 2, .position_before = {4, 5, 6}};
  EXPECT_EQ(position_before(batch, sequence, 0), (std::array<int32_t, 3>{4, 5, 6}));
  EXPECT_EQ(position_before(batch, sequence, 1), (std::array<int32_t, 3>{8, 18, 28}));
}

}  // namespace
}  // namespace nibble
