// A list made from a row by hand. src/engine/sample/sampler_short_list_test.cc asks what lists
// decide.
#include "model/short_list.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nibble {
namespace {

TEST(ShortList, HoldsTheBestSampleableTokensAndTheMassOfTheRest) {
  const std::vector<float> row = {1.0F, 3.0F, 3.0F, 9.0F, 2.0F, 0.0F};
  const std::vector<uint32_t> sampleable = {0b110111};  // not token 3
  const OwnedShortList list = OwnedShortList::of(row, sampleable, {.temperature = 2.0F}, 3, 2);
  EXPECT_EQ(list.tokens, (std::vector<int32_t>{1, 2, 4}));
  EXPECT_EQ(list.logits, (std::vector<float>{3.0F, 3.0F, 2.0F}));
  EXPECT_TRUE(list.numbers.sound);
  EXPECT_FALSE(list.numbers.all);
  const double rest = std::exp(-1.0) + std::exp(-1.5);
  EXPECT_NEAR(list.numbers.rest, rest, 1e-6);
  EXPECT_NEAR(list.numbers.total, 2.0 + std::exp(-0.5) + rest, 1e-6);
}

}  // namespace
}  // namespace nibble
