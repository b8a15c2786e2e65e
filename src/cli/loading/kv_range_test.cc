// The words of the line for bounds within FP8 and beyond it.
#include "cli/loading/kv_range.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(KvRange, IsToldWithTheLayersThatDecideIt) {
  EXPECT_EQ(kv_range_notice({.keys = {.most = 33.2, .layer = "layer 3"},
                             .values = {.most = 358.0, .layer = "the MTP layer"}}),
            "FP8 pages: the weights allow keys up to 34 (layer 3) and values up to 358 (the MTP "
            "layer) of 448, so none is cut off\n");
}

TEST(KvRange, IsWarnedOfWhereNumbersCouldBeCutOff) {
  const KvBound small = {.most = 9.0, .layer = "layer 3"};
  const KvBound large = {.most = 358.5, .layer = "layer 7"};
  for (const KvBounds& bounds :
       {KvBounds{.keys = small, .values = large}, KvBounds{.keys = large, .values = small}}) {
    const std::string line = kv_range_notice(bounds);
    EXPECT_NE(line.find("up to 359 (layer 7)"), std::string::npos) << line;
    EXPECT_NE(line.find("nibble eval kv"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace nibble
