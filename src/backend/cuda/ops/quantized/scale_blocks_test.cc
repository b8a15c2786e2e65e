// Checks the order of block scales against one that is written from the manual in the other
// direction, byte after byte. No card takes part.
#include "backend/cuda/ops/quantized/scale_blocks.h"

#include <gtest/gtest.h>

#include <vector>

namespace nibble::cuda {
namespace {

/// Row and scale of each byte, in the order of bytes.
struct Scale {
  int64_t row, scale;
};
std::vector<Scale> scales_by_byte(int64_t rows, int64_t scales) {
  std::vector<Scale> bytes;
  for (int64_t block_row = 0; block_row < rows; block_row += 128)
    for (int64_t block_scale = 0; block_scale < scales; block_scale += 4)
      for (int64_t line = 0; line < 32; ++line)
        for (int64_t quarter = 0; quarter < 4; ++quarter)
          for (int64_t byte = 0; byte < 4; ++byte)
            bytes.push_back({block_row + 32 * quarter + line, block_scale + byte});
  return bytes;
}

TEST(ScaleBlocks, EveryByteHasTheScaleOfTheManual) {
  constexpr int64_t kShapes[][2] = {{128, 4}, {128, 16}, {256, 4}, {384, 128}, {512, 352}};
  for (const auto& [rows, scales] : kShapes) {
    const std::vector<Scale> bytes = scales_by_byte(rows, scales);
    ASSERT_EQ(std::ssize(bytes), rows * scales);
    for (size_t byte = 0; byte < bytes.size(); ++byte)
      ASSERT_EQ(scale_place(bytes[byte].row, bytes[byte].scale, scales), byte)
          << "row " << bytes[byte].row << ", scale " << bytes[byte].scale << " of " << scales;
  }
}

TEST(ScaleBlocks, RowsFillWholeBlocks) {
  EXPECT_EQ(scale_block_rows(0), 0);
  EXPECT_EQ(scale_block_rows(1), 128);
  EXPECT_EQ(scale_block_rows(128), 128);
  EXPECT_EQ(scale_block_rows(129), 256);
}

}  // namespace
}  // namespace nibble::cuda
