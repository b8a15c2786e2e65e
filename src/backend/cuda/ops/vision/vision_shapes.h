// Shapes that the vision tower's kernels share with its memory plan. Without CUDA headers.
#pragma once

#include <cstdint>

namespace nibble::cuda {

/// The place of a patch in its frame, and the frame's size; all in patches.
struct FramePlace {
  int16_t row = 0;
  int16_t column = 0;
  int16_t rows = 1;
  int16_t columns = 1;
};

/// Columns of a head in memory: D rounded up to a multiple of 16, the added ones zero.
constexpr int32_t padded_head(int32_t head_dim) { return (head_dim + 15) / 16 * 16; }

/// True if the tower's attention has a kernel for heads of this size.
constexpr bool vision_head_fits(int32_t head_dim) {
  const int32_t padded = padded_head(head_dim);
  return head_dim % 8 == 0 && (padded == 32 || padded == 64 || padded == 80);
}

}  // namespace nibble::cuda
