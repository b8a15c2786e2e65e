// A warp's slice of the state of the delta rule, which the forward and the backward walk share:
// eight columns of values and all rows of keys. Lane l has columns 4 (l / 16) .. + 3 of the eight
// and rows 4 (l % 16) .. + 3 and those plus 64.
#pragma once

#include "backend/cuda/ops/gradient/gradient_delta.h"
#include "backend/cuda/ops/gradient/gradient_parts.cuh"

namespace nibble::cuda {

inline constexpr int kSliceColumns = 8;  // of a warp
inline constexpr int kLaneColumns = 4;
inline constexpr int kLaneRows = 8;
inline constexpr int kGroupLanes = 16;  // lanes that share columns
static_assert(kGroupLanes * kLaneRows == kGradientDeltaMax);

/// Numbers of the rows of a lane.
struct LaneRows {
  float v[kLaneRows];

  /// `dim` numbers from `from` on; zeros beyond.
  __device__ void load(const float* from, int dim) {
    const int row = lane() % kGroupLanes * 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = row + half * (kGradientDeltaMax / 2);
      if (dim % 4 == 0) {
        float4 x = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        if (at < dim) x = *reinterpret_cast<const float4*>(from + at);
        v[half * 4] = x.x;
        v[half * 4 + 1] = x.y;
        v[half * 4 + 2] = x.z;
        v[half * 4 + 3] = x.w;
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) v[half * 4 + i] = at + i < dim ? from[at + i] : 0.0F;
      }
    }
  }
};

/// The sums over the 16 lanes of a group of four numbers each: each lane has that of column
/// own_column().
__device__ __forceinline__ float sum_columns(const float (&p)[kLaneColumns]) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  const bool upper = (lane() & 8) != 0, second = (lane() & 4) != 0;
  float a = upper ? p[2] : p[0], b = upper ? p[3] : p[1];
  a += __shfl_xor_sync(kAll, upper ? p[0] : p[2], 8);
  b += __shfl_xor_sync(kAll, upper ? p[1] : p[3], 8);
  float own = second ? b : a;
  own += __shfl_xor_sync(kAll, second ? a : b, 4);
  own += __shfl_xor_sync(kAll, own, 2);
  own += __shfl_xor_sync(kAll, own, 1);
  return own;
}
/// The column, of the lane's four, whose sum sum_columns() gives this lane.
__device__ __forceinline__ int own_column() { return (lane() >> 2) & 3; }
/// One lane of the four that have the sum of a column.
__device__ __forceinline__ bool tells_column() { return (lane() & 3) == 0; }
/// All four columns of what each lane has for its own.
__device__ __forceinline__ void spread_columns(float own, float (&all)[kLaneColumns]) {
#pragma unroll
  for (int n = 0; n < kLaneColumns; ++n)
    all[n] = __shfl_sync(0xFFFFFFFFU, own, (lane() & kGroupLanes) | n << 2);
}

/// A lane's part of the state. In memory a state is delta_state_floats() numbers, of which warp w
/// has those from w * kSliceFloats on.
inline constexpr int kSliceFloats = kLaneColumns * kLaneRows * kWarp;
struct StateSlice {
  float s[kLaneColumns][kLaneRows];

  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < kLaneColumns; ++n)
#pragma unroll
      for (int e = 0; e < kLaneRows; ++e) s[n][e] = 0.0F;
  }
  __device__ void load(const float* slice) {
    const auto* from = reinterpret_cast<const float4*>(slice) + lane();
#pragma unroll
    for (int i = 0; i < kLaneColumns * kLaneRows / 4; ++i) {
      const float4 x = from[i * kWarp];
      float* to = &s[i / 2][i % 2 * 4];
      to[0] = x.x;
      to[1] = x.y;
      to[2] = x.z;
      to[3] = x.w;
    }
  }
  __device__ void store(float* slice) const {
    auto* to = reinterpret_cast<float4*>(slice) + lane();
#pragma unroll
    for (int i = 0; i < kLaneColumns * kLaneRows / 4; ++i) {
      const float* from = &s[i / 2][i % 2 * 4];
      to[i * kWarp] = make_float4(from[0], from[1], from[2], from[3]);
    }
  }
  /// S^T x of the lane's own column.
  __device__ float times(const LaneRows& x) const {
    float p[kLaneColumns] = {};
#pragma unroll
    for (int e = 0; e < kLaneRows; ++e)
#pragma unroll
      for (int n = 0; n < kLaneColumns; ++n) p[n] = fmaf(x.v[e], s[n][e], p[n]);
    return sum_columns(p);
  }
  /// S = alpha S + k u^T.
  __device__ void learn(float alpha, const LaneRows& k, const float (&u)[kLaneColumns]) {
#pragma unroll
    for (int n = 0; n < kLaneColumns; ++n)
#pragma unroll
      for (int e = 0; e < kLaneRows; ++e) s[n][e] = fmaf(k.v[e], u[n], alpha * s[n][e]);
  }
};

/// One head of one sample.
struct HeadOfSample {
  const GradientDelta& d;
  const DeltaRows& rows;
  DeltaSample sample;
  int head;

  __device__ int64_t row(int t) const { return int64_t{sample.begin} + t; }
  __device__ const float* key(const float* vectors, int t) const {
    return vectors + (row(t) * d.k_heads + head / (d.v_heads / d.k_heads)) * d.k_dim;
  }
  __device__ int64_t gate(int t) const { return row(t) * d.v_heads + head; }
  __device__ int64_t at_value(int t) const { return gate(t) * d.v_dim; }
  /// The place of the values of a token among the channels of all rows.
  __device__ int64_t at_channel(int t) const {
    const int64_t keys = 2 * int64_t{d.k_heads} * d.k_dim;
    return row(t) * (keys + int64_t{d.v_heads} * d.v_dim) + keys + int64_t{head} * d.v_dim;
  }
  __device__ int64_t start(int t) const {
    return (int64_t{sample.chunk + t / kGradientChunk} * d.v_heads + head) *
           delta_state_floats(d.v_dim);
  }
};

}  // namespace nibble::cuda
