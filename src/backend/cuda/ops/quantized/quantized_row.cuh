// A row of BF16 inputs as the kernels that make codes of it read it: 16 columns for a thread at a
// time, in either order of columns. Formulas are those of the kernels' own files.
#pragma once

#include "backend/cuda/ops/quantized/quantized_rows.h"
#include "backend/cuda/ptx/device_math.cuh"

namespace nibble::cuda {

inline constexpr int kRowThreads = 128;
inline constexpr int kRowGroup = static_cast<int>(kNvfp4Group);

/// Columns c and c + 4 of eight, which both orders keep in one word, low half first.
struct ColumnGroup {
  uint32_t pairs[8];  // of columns 0..7, then of 8..15
  __device__ float at(int column) const {
    const uint32_t pair = pairs[column / 8 * 4 + column % 4];
    return column % 8 < 4 ? low_bf16(pair) : high_bf16(pair);
  }
};

class InputRow {
 public:
  __device__ InputRow(const QuantizeRows& a, int item)
      : order_(a.order),
        x_(a.x + (a.from == nullptr ? item / a.share : a.from[item]) * a.x_stride) {}

  /// `begin`: a multiple of 16.
  __device__ ColumnGroup read(int begin) const {
    ColumnGroup group;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int column = begin + i / 4 * 8 + i % 4;
      const int at = order_ == ColumnOrder::packed ? packed_position(column) : x_place(column);
      group.pairs[i] = *reinterpret_cast<const uint32_t*>(x_ + at);
    }
    return group;
  }

 private:
  ColumnOrder order_;
  const uint16_t* x_;
};

/// Returns the bits of the largest magnitude; those of NaN are larger than those of every number.
__device__ inline uint32_t largest(const ColumnGroup& group) {
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < kRowGroup; ++i) bits = max(bits, __float_as_uint(fabsf(group.at(i))));
  return bits;
}

}  // namespace nibble::cuda
