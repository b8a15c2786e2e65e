// Norm and rotation of one head of a row by one warp, and the line of a page that a token has:
// what generation and prompts share of what comes before attention.
#pragma once

#include "backend/cuda/ops/attention/attention.h"
#include "backend/cuda/ops/attention/kv_step.cuh"

namespace nibble::cuda {

inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr int kHeadQuads = kHeadDimMax / 128;  // groups of 4 elements of a lane

/// One head over a warp: lane l has elements 128 j + 4 l + e.
struct HeadPart {
  float x[kHeadQuads][4];
  static __device__ __forceinline__ int element(int j) {
    return 128 * j + 4 * (static_cast<int>(threadIdx.x) % 32);
  }
};

__device__ __forceinline__ float value_of(float x) { return x; }
__device__ __forceinline__ float value_of(uint16_t x) { return from_bf16(x); }
__device__ __forceinline__ void load_quad(const float* from, float (&to)[4]) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}
__device__ __forceinline__ void load_quad(const uint16_t* from, float (&to)[4]) {
  const uint2 v = *reinterpret_cast<const uint2*>(from);
  to[0] = low_bf16(v.x), to[1] = high_bf16(v.x), to[2] = low_bf16(v.y), to[3] = high_bf16(v.y);
}

/// Elements beyond head_dim are zero.
template <typename T>
__device__ __forceinline__ HeadPart load_head(const T* from, int head_dim) {
  HeadPart head = {};
#pragma unroll
  for (int j = 0; j < kHeadQuads; ++j) {
    const int d = HeadPart::element(j);
    if (head_dim % 4 == 0) {
      if (d < head_dim) load_quad(from + d, head.x[j]);
      continue;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (d + e < head_dim) head.x[j][e] = value_of(from[d + e]);
  }
  return head;
}

inline constexpr int kPairsMax = kHeadDimMax / 2;

/// Returns the cosine and the sine of rotary pair `pair` of a row.
__device__ __forceinline__ float2 rotation_of(const AttentionArgs& a, int row, int pair) {
  const int32_t position = a.batch.positions[a.rope.axes[pair] * a.batch.positions_stride + row];
  constexpr double kTwoPi = 6.283185307179586476925;
  double angle = position * a.rope.inverse_frequencies[pair];
  angle -= kTwoPi * rint(angle * (1.0 / kTwoPi));
  float2 rotation;
  sincosf(static_cast<float>(angle), &rotation.y, &rotation.x);
  return make_float2(rotation.x * a.rope.scale, rotation.y * a.rope.scale);
}

/// Writes norm(head) to `to` [kHeadDimMax]; elements beyond head_dim become zero.
__device__ __forceinline__ void norm_head(const AttentionArgs& a, const HeadPart& weight,
                                          const HeadPart& head, float* to) {
  float squares = 0.0F;
#pragma unroll
  for (int j = 0; j < kHeadQuads; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) squares = fmaf(head.x[j][e], head.x[j][e], squares);
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(a.head_dim) + a.eps);
#pragma unroll
  for (int j = 0; j < kHeadQuads; ++j) {
    float x[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) x[e] = __fmul_rn(__fmul_rn(head.x[j][e], scale), weight.x[j][e]);
    *reinterpret_cast<float4*>(to + HeadPart::element(j)) = make_float4(x[0], x[1], x[2], x[3]);
  }
}
/// Rotates kCount heads, kHeadDimMax apart, in place; the caller has a barrier of the warp before
/// and after. `rotations` has rotation_of() each pair.
template <int kCount>
__device__ __forceinline__ void rotate_heads(int pairs, const float2* rotations, float* heads) {
  for (int i = static_cast<int>(threadIdx.x) % 32; i < pairs; i += 32) {
    const float2 by = rotations[i];
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      float* x = heads + k * kHeadDimMax + i;
      const float low = x[0];
      const float high = x[pairs];
      x[0] = __fmaf_rn(low, by.x, -__fmul_rn(high, by.y));
      x[pairs] = __fmaf_rn(high, by.x, __fmul_rn(low, by.y));
    }
  }
}

/// Returns the offsets of the key, or the value, of a token of a row's sequence in the pool.
template <KvFormat kFormat, KvSide kSide>
__device__ __forceinline__ KvLineAt line_begin(const AttentionArgs& a, int row, int token,
                                               int head) {
  const int64_t page = a.batch.pages[a.batch.page_begin[row] + token / kPage] * a.kv.page_stride;
  const KvLineAt in_page = line_in_page<kFormat, kSide>(head, token % kPage, a.head_dim);
  return {page + in_page.codes, page + in_page.scales};
}

}  // namespace nibble::cuda
