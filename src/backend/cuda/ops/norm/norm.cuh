// A block of threads has one row in its registers and computes its RMS norm; every kernel that
// finishes a row ends so.
#pragma once

#include "backend/cuda/ops/linear/prefill_order.h"
#include "backend/cuda/ops/norm/norm.h"
#include "backend/cuda/ptx/device_math.cuh"

namespace nibble::cuda {

inline constexpr int kNormThreads = 512;

/// A thread has groups of kWidth adjacent columns, kNormThreads groups apart.
template <int kWidth>
struct RowPart {
  static constexpr int kGroups = kHiddenMax / kNormThreads / kWidth;
  float v[kGroups][kWidth];

  static __device__ __forceinline__ int column(int group) {
    return (group * kNormThreads + static_cast<int>(threadIdx.x)) * kWidth;
  }
};

template <int kWidth>
__device__ __forceinline__ void load_columns(const float* from, float (&to)[kWidth]) {
  if constexpr (kWidth == 4) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
  } else {
    to[0] = *from;
  }
}
template <int kWidth>
__device__ __forceinline__ void store_columns(const float (&from)[kWidth], float* to) {
  if constexpr (kWidth == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  } else {
    *to = from[0];
  }
}

/// Loads the columns of a thread; those beyond `columns` are zero.
template <int kWidth>
__device__ __forceinline__ RowPart<kWidth> load_part(const float* from, int columns) {
  RowPart<kWidth> part = {};
#pragma unroll
  for (int g = 0; g < RowPart<kWidth>::kGroups; ++g)
    if (RowPart<kWidth>::column(g) < columns)
      load_columns(from + RowPart<kWidth>::column(g), part.v[g]);
  return part;
}

/// The order of the columns of an input: as generation arithmetic reads them (x_place), or as
/// prompt arithmetic does (packed_position).
enum class InputOrder : uint8_t { placed, packed };

/// The shared memory of norm_row has the sums of the adjacent columns of one warp.
template <int kWidth>
struct NormScratch {
  float squares[kHiddenMax / 32 / kWidth];
};

/// Computes x = bf16(h * rsqrt(mean(h^2) + eps) * w), and the same in F32 to `wide` unless that is
/// null. Squares are added up in groups of 32 kWidth columns, the groups in order, whatever the
/// size of the block. Column 0 is column `first` of x.
template <int kWidth>
__device__ __forceinline__ void norm_row(const RowPart<kWidth>& h, int hidden,
                                         const RowPart<kWidth>& w, float eps, InputOrder order,
                                         uint16_t* x, float* wide, NormScratch<kWidth>& scratch,
                                         int first = 0) {
  constexpr int kWarps = kNormThreads / 32;
#pragma unroll
  for (int g = 0; g < RowPart<kWidth>::kGroups; ++g) {
    const int group = g * kWarps + static_cast<int>(threadIdx.x) / 32;
    if (group * 32 * kWidth >= hidden) continue;
    float squares = 0.0F;
    if (RowPart<kWidth>::column(g) < hidden)
#pragma unroll
      for (int i = 0; i < kWidth; ++i) squares = fmaf(h.v[g][i], h.v[g][i], squares);
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0) scratch.squares[group] = squares;
  }
  __syncthreads();
  float total = 0.0F;
#pragma unroll 16
  for (int group = 0; group < (hidden + 32 * kWidth - 1) / (32 * kWidth); ++group)
    total += scratch.squares[group];
  const float scale = rsqrtf(total / static_cast<float>(hidden) + eps);
#pragma unroll
  for (int g = 0; g < RowPart<kWidth>::kGroups; ++g) {
    const int column = RowPart<kWidth>::column(g);
    if (column >= hidden) continue;
    float y[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) y[i] = __fmul_rn(w.v[g][i], __fmul_rn(h.v[g][i], scale));
    if (wide != nullptr) store_columns(y, wide + column);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const int c = first + column + i;
      x[order == InputOrder::placed ? x_place(c) : packed_position(c)] = to_bf16(y[i]);
    }
  }
}

}  // namespace nibble::cuda
