// Tiles of the attention of gradients: 64 rows of one operand against 64 of another, four warps
// with 16 rows each. Operands are F32 rows in two BF16 parts in shared memory, high and low, and a
// product is high * high + high * low + low * high in F32: 16 bits of each number count.
#pragma once

#include "backend/cuda/ops/gradient/gradient_attention.h"
#include "backend/cuda/ops/gradient/gradient_parts.cuh"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/shared_tile.cuh"

namespace nibble::cuda {

inline constexpr int kAttentionTile = kTileLines;
inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = kAttentionWarps * kWarp;

/// Heads of rows, `stride` numbers apart; rows from `end` on are zero.
struct HeadRows {
  const float* values = nullptr;  // of row 0
  int64_t stride = 0;
  int32_t end = 0;
  int32_t dim = 0;
};

/// Scores of a warp: 16 rows, eight columns a tile of mma. Number i of tile n is row score_row(i)
/// of the warp's and column 8 n + score_column(i).
using Scores = float[kAttentionTile / 8][4];
__device__ __forceinline__ int score_row(int i) { return lane() / 4 + i / 2 * 8; }
__device__ __forceinline__ int score_column(int i) { return lane() % 4 * 2 + i % 2; }
__device__ __forceinline__ int warp_row() { return static_cast<int>(threadIdx.x) / kWarp * 16; }

/// kColumns: of a head, with zeros beyond its numbers.
template <int kColumns>
struct AttentionTiles {
  static constexpr int kPart = tile_bytes(kColumns);  // bytes; the low part follows the high one
  static constexpr int kBytes = 2 * kPart;
  using Sums = float[kColumns / 8][4];

  /// Rows first .. first + 63 to the tile at `to`. All threads; barriers are the caller's.
  static __device__ void load(uint32_t to, const HeadRows& rows, int first) {
    constexpr int kChunks = kColumns / 8;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kAttentionTile * kChunks;
         i += kAttentionThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      float x[8];
      load_eight(rows, first + row, chunk * 8, x);
      uint32_t high[4], low[4];
#pragma unroll
      for (int p = 0; p < 4; ++p) split(x[2 * p], x[2 * p + 1], high[p], low[p]);
      store_shared_16(to + tile_offset(row, chunk), high);
      store_shared_16(to + kPart + tile_offset(row, chunk), low);
    }
  }

  /// sums += the warp's 16 rows of `left` times the rows of `right`.
  static __device__ void multiply(uint32_t left, uint32_t right, Scores& sums) {
#pragma unroll 2
    for (int k = 0; k < kColumns; k += 16) {
      uint32_t high[4], low[4];
      load_left(high, left, warp_row(), k);
      load_left(low, left + kPart, warp_row(), k);
#pragma unroll
      for (int n = 0; n < kAttentionTile; n += 16) {
        uint32_t b[4], rest[4];
        load_right_rows(b, right, k, n);
        load_right_rows(rest, right + kPart, k, n);
        add_products(high, low, b, rest, sums[n / 8], sums[n / 8 + 1]);
      }
    }
  }

  /// sums += scores times the tile `right`, whose rows are the scores' columns.
  static __device__ void accumulate(const Scores& scores, uint32_t right, Sums& sums) {
#pragma unroll
    for (int k = 0; k < kAttentionTile / 16; ++k) {
      uint32_t high[4], low[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &scores[2 * k + i / 2][i % 2 * 2];
        split(pair[0], pair[1], high[i], low[i]);
      }
#pragma unroll
      for (int n = 0; n < kColumns; n += 16) {
        uint32_t b[4], rest[4];
        load_right(b, right, 16 * k, n);
        load_right(rest, right + kPart, 16 * k, n);
        add_products(high, low, b, rest, sums[n / 8], sums[n / 8 + 1]);
      }
    }
  }

  /// The warp's rows of `to`, `stride` numbers apart; rows from `end` on are left out.
  static __device__ void store(const Sums& sums, const HeadRows& like, int first, float* to) {
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first + warp_row() + score_row(i), column = 8 * n + score_column(i);
        if (row < like.end && column < like.dim) to[row * like.stride + column] = sums[n][i];
      }
  }

 private:
  static __device__ void load_eight(const HeadRows& rows, int row, int column, float (&x)[8]) {
    const float* from = rows.values + row * rows.stride + column;
    if (row < rows.end && column + 8 <= rows.dim && rows.dim % 4 == 0) {
      const float4 a = *reinterpret_cast<const float4*>(from);
      const float4 b = *reinterpret_cast<const float4*>(from + 4);
      x[0] = a.x;
      x[1] = a.y;
      x[2] = a.z;
      x[3] = a.w;
      x[4] = b.x;
      x[5] = b.y;
      x[6] = b.z;
      x[7] = b.w;
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = row < rows.end && column + i < rows.dim ? from[i] : 0.0F;
  }
  static __device__ void split(float a, float b, uint32_t& high, uint32_t& low) {
    high = to_bf16_pair(a, b);
    low = to_bf16_pair(a - low_bf16(high), b - high_bf16(high));
  }
  /// Two tiles of eight columns; the smaller products first.
  static __device__ void add_products(const uint32_t (&high)[4], const uint32_t (&low)[4],
                                      const uint32_t (&b)[4], const uint32_t (&rest)[4],
                                      float (&first)[4], float (&second)[4]) {
    mma_bf16(first, low, b[0], b[1]);
    mma_bf16(second, low, b[2], b[3]);
    mma_bf16(first, high, rest[0], rest[1]);
    mma_bf16(second, high, rest[2], rest[3]);
    mma_bf16(first, high, b[0], b[1]);
    mma_bf16(second, high, b[2], b[3]);
  }
};

}  // namespace nibble::cuda
