// The order in which tcgen05.mma with block scales (.scale_vec::4X) takes the E4M3 scales of a
// matrix, of which each has 16 columns: blocks of 128 rows x 4 scales, 512 bytes each, those of the
// same rows one after the other. A block has 32 lines of 16 bytes; line i has the four scales of
// row i, then those of rows i + 32, i + 64 and i + 96. (PTX ISA, "Layout of the Scale Factor A
// Matrix"; CUTLASS, blackwell_functionality.md, "Scale Factor Layouts".)
#pragma once

#include <cstdint>

#include "backend/cuda/ops/linear/prefill_order.h"

namespace nibble::cuda {

inline constexpr int64_t kScaleBlockRows = 128;
inline constexpr int64_t kScaleBlockScales = 4;
inline constexpr int64_t kScaleBlockBytes = kScaleBlockRows * kScaleBlockScales;

/// Returns the byte of scale `scale` of row `row`; rows have `scales` of them, a multiple of four.
NIBBLE_HOST_DEVICE constexpr int64_t scale_place(int64_t row, int64_t scale, int64_t scales) {
  const int64_t block =
      row / kScaleBlockRows * (scales / kScaleBlockScales) + scale / kScaleBlockScales;
  return block * kScaleBlockBytes + row % 32 * 16 + row % kScaleBlockRows / 32 * 4 +
         scale % kScaleBlockScales;
}
/// Returns the rows that `rows` take with those that fill their last block.
NIBBLE_HOST_DEVICE constexpr int64_t scale_block_rows(int64_t rows) {
  return (rows + kScaleBlockRows - 1) / kScaleBlockRows * kScaleBlockRows;
}

}  // namespace nibble::cuda
