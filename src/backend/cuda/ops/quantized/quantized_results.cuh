// Steps from the sums of a tile of products of codes (quantized_tile.cuh) to its results: factors
// of blocks, SwiGLU, and rows that become codes again.
#pragma once

#include "backend/cuda/ops/quantized/quantized_gemm.h"
#include "backend/cuda/ops/quantized/quantized_row.cuh"
#include "backend/cuda/ptx/bf16.cuh"

namespace nibble::cuda {

/// Returns the scale of the 128 x 128 block of `part` and of row `row` of matrix `matrix`, in FP8.
__device__ inline float block_factor(const DeviceLinear& w, int matrix, int row, int part) {
  const int blocks = w.cols / static_cast<int>(kFp8Block);
  return w.factors[matrix * w.factor_stride + row / static_cast<int>(kFp8Block) * blocks + part];
}

/// Returns two results of SwiGLU; `d` has two sums of gate, then those of up.
__device__ inline uint32_t swiglu_pair(const float (&d)[4]) {
  return to_bf16_pair(silu(d[0]) * d[2], silu(d[1]) * d[3]);
}

/// Waits for the `kWarps` warps that have the same columns: one, or all of the thread block.
template <int kWarps>
__device__ inline void meet_warps() {
  if constexpr (kWarps == 1)
    __syncwarp();
  else
    __syncthreads();
}

inline constexpr int kGroupWords = kRowGroup / 2;

/// Makes codes of 16 columns of a row of results, from `column` on, as matrix `matrix` of gemm.next
/// has its inputs. `words`: the pairs of a ColumnGroup. The last columns write those that pad the
/// row, as zeros.
__device__ inline void store_group(const QuantizedGemm& gemm, int matrix, int64_t row, int column,
                                   const uint32_t* words) {
  ColumnGroup group;
#pragma unroll
  for (int i = 0; i < kGroupWords; ++i) group.pairs[i] = words[i];
  const auto codes_at = [&](int64_t at) {
    return reinterpret_cast<uint2*>(gemm.codes.codes + at / 2);
  };
  int64_t at = row * gemm.next.cols + column;
  make_fp4_group(group, input_scale_of(gemm.next, matrix), gemm.next.input_scales,
                 gemm.codes.scales + at / kRowGroup, codes_at(at));
  if (column + kRowGroup != gemm.weight.rows) return;
  for (int c = gemm.weight.rows; c < gemm.next.cols; c += kRowGroup) {
    at += kRowGroup;
    gemm.codes.scales[at / kRowGroup] = kZeroScale;
    *codes_at(at) = uint2{};
  }
}

}  // namespace nibble::cuda
