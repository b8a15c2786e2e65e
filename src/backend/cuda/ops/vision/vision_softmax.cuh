// The parts that both kernels of the tower's attention share: copies of lines to shared memory, the
// running softmax of 16 queries of a warp over tiles of 64 keys, in the fragments of a matrix
// instruction, and the store of their results.
#pragma once

#include "backend/cuda/ops/vision/vision.h"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/cluster.cuh"
#include "backend/cuda/ptx/copy.cuh"
#include "backend/cuda/ptx/device_math.cuh"

namespace nibble::cuda {

/// The work of a thread block of either kernel, whose grid is (queries / kVisionQueries, heads):
/// queries [begin, end) of one head.
struct VisionBlock {
  __device__ VisionBlock(const VisionAttention& attention, uint8_t* shared)
      : in(attention),
        base(shared_address(shared)),
        lane(static_cast<int>(threadIdx.x) & 31),
        warp(static_cast<int>(threadIdx.x) >> 5),
        head(static_cast<int>(blockIdx.y)),
        begin(in.query_begin + static_cast<int>(blockIdx.x) * kVisionQueries),
        end(begin + kVisionQueries < in.query_end ? begin + kVisionQueries : in.query_end) {}
  __device__ int frame_rows() const { return in.frame_end - in.frame_begin; }

  const VisionAttention& in;
  uint32_t base;  // address in shared memory
  int lane;
  int warp;
  int head;
  int begin;
  int end;
};

/// A kernel of attention and the shared memory of a block.
struct VisionAttentionKernel {
  void (*run)(VisionAttention);
  int shared_bytes;
};
/// The kernel for a head size that has one, on wgmma; CHECKs the size.
VisionAttentionKernel wgmma_attention(int head_dim);

/// Copies lines [0, kLines) of part `part` (q, k, v) of a head from row `begin` on to shared
/// memory, chunk c (16 bytes) of line l to to_of(l, c). Lines from row `end` on become zero: zero
/// times a number that is not finite would be NaN.
template <int kDim, int kLines, int kThreads, typename ToOf>
__device__ __forceinline__ void copy_head_lines(const VisionAttention& in, int head, int part,
                                                int begin, int end, const ToOf& to_of) {
  const uint16_t* from = in.qkv + ((part * in.heads + head) * in.rows + begin) * kDim;
  constexpr int kChunks = kDim / 8;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kLines * kChunks; i += kThreads) {
    const bool valid = begin + i / kChunks < end;
    copy_async_16(to_of(i / kChunks, i % kChunks), from + (valid ? i * 8 : 0), valid ? 16 : 0);
  }
}

/// Makes the left operand [16, 16] of keys 16 k .. 16 k + 15 of the softmax weights of a tile.
__device__ __forceinline__ void left_operand(const float (&s)[8][4], int k, uint32_t (&p)[4]) {
  p[0] = to_bf16_pair(s[2 * k][0], s[2 * k][1]);
  p[1] = to_bf16_pair(s[2 * k][2], s[2 * k][3]);
  p[2] = to_bf16_pair(s[2 * k + 1][0], s[2 * k + 1][1]);
  p[3] = to_bf16_pair(s[2 * k + 1][2], s[2 * k + 1][3]);
}

/// 2^x for x <= 0; weights below 2^-126 are zero.
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <int kDim>
class VisionSoftmax {
 public:
  /// Keys from `left` on are not of the frame.
  __device__ void mask(float (&s)[8][4], int left) const {
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (j * 8 + (static_cast<int>(threadIdx.x) & 3) * 2 + (e & 1) >= left) s[j][e] = -INFINITY;
  }

  /// Makes of the scores their share of the softmax, relative to the running maximum; `keep` is
  /// the factor that brings earlier results of both rows to it.
  __device__ void weigh(float (&s)[8][4], int head_dim, float (&keep)[2]) {
    constexpr float kLog2E = 1.4426950408889634F;
    const float scale = kLog2E * rsqrtf(static_cast<float>(head_dim));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = highest_[half];
#pragma unroll
      for (int j = 0; j < 8; ++j) top = fmaxf(top, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
      top = quad_max(top);
      const float base = top == -INFINITY ? 0.0F : top * scale;  // a NaN query has no maximum
      keep[half] = power_of_two(highest_[half] * scale - base);
      highest_[half] = top;
      float sum = 0.0F;
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          s[j][e] = power_of_two(s[j][e] * scale - base);
          sum += s[j][e];
        }
      total_[half] = total_[half] * keep[half] + sum;
    }
  }
  /// Most tiles leave the maxima of a warp's rows as they are.
  static __device__ void rescale(const float (&keep)[2], float (&out)[kDim / 2]) {
    if (!__any_sync(0xFFFFFFFFU, keep[0] != 1.0F || keep[1] != 1.0F)) return;
#pragma unroll
    for (int d = 0; d < kDim / 2; ++d) out[d] *= keep[d >> 1 & 1];
  }

  /// Stores the queries from row `first` on; those from row `end` on are not of the tile.
  __device__ void store(const VisionAttention& in, int head, int first, int end,
                        const float (&out)[kDim / 2]) const {
    const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = quad_sum(total_[half]);
      const int row = first + half * 8 + (lane >> 2);
      if (row >= end) continue;
      uint16_t* to = in.out + (row - in.query_begin) * in.stride + head * in.head_dim;
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
        const int column = d * 8 + (lane & 3) * 2;
        if (column < in.head_dim)
          *reinterpret_cast<uint32_t*>(to + column) =
              to_bf16_pair(out[4 * d + 2 * half] / total, out[4 * d + 2 * half + 1] / total);
      }
    }
  }

 private:
  float highest_[2] = {-INFINITY, -INFINITY};
  float total_[2] = {0.0F, 0.0F};  // of this lane's keys
};

}  // namespace nibble::cuda
