// The way in which 16 bytes of a weight row become operands of wgmma, for linear_stream.cuh.
//
// K may be in any order as long as weights and inputs share it. Lane t of four reads 16 bytes of a
// row at a time; the 16 inputs of one wgmma step are four of each of the four lanes' columns, so
// that a code is widened where it lies.
#pragma once

#include "backend/cuda/ops/linear/resident.cuh"

namespace nibble::cuda {

/// Returns the first of lane group g's two rows of 16; the second is 8 further. Adjacent groups are
/// four rows apart, so their 64 bytes lie in different banks.
__device__ __forceinline__ int stream_row(int g) { return (g >> 1) + 4 * (g & 1); }

/// Returns the first of the 8 columns that lane t's inputs come from, which are half `half` (0, 1)
/// of its share of the 64 columns `line`.
template <Format kFormat>
__device__ __forceinline__ int line_column(int line, int t, int half) {
  if constexpr (kFormat == Format::nvfp4)
    return 128 * (line / 2) + 32 * t + 16 * (line % 2) + 8 * half;
  return 64 * line + 16 * t + 8 * half;
}
/// Fragments has the operands of the kSteps wgmma steps that 16 bytes of two rows give, or of a
/// half of them (`part`).
template <Format kFormat>
struct Fragments {
  static constexpr int kSteps = 4;
  static constexpr int kParts = kFormat == Format::nvfp4 ? 2 : 1;  // parts of 16 bytes
  uint32_t a[kSteps][4];

  /// `scales` has those of both rows for these columns (nvfp4).
  __device__ __forceinline__ void widen(const uint4& low, const uint4& high, int part,
                                        const uint32_t (&scales)[2]) {
    if constexpr (kFormat == Format::fp8) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const E4m3Pairs first = e4m3_pairs(word_of(low, j));
        const E4m3Pairs second = e4m3_pairs(word_of(high, j));
        a[j][0] = first.of[0], a[j][1] = second.of[0];
        a[j][2] = first.of[1], a[j][3] = second.of[1];
      }
    } else {
#pragma unroll
      for (int row = 0; row < 2; ++row)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          uint32_t pairs[4];
          widen_e2m1(word_of(row == 0 ? low : high, 2 * part + j), scales[row], pairs);
          a[2 * j][row] = pairs[0];
          a[2 * j][2 + row] = pairs[1];
          a[2 * j + 1][row] = pairs[2];
          a[2 * j + 1][2 + row] = pairs[3];
        }
    }
  }
};

}  // namespace nibble::cuda
