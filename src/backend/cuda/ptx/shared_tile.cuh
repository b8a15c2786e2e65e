// Tiles of 64 lines in shared memory and the mma operands read from them: what the delta-net and
// the attention prefill share.
#pragma once

#include "backend/cuda/ptx/cluster.cuh"
#include "backend/cuda/ptx/copy.cuh"
#include "backend/cuda/ptx/mma.cuh"
#include "backend/cuda/ptx/tile_bytes.h"

namespace nibble::cuda {

/// Lines of 128 bytes in shared memory, eight of them a swizzle atom: 16-byte chunk c of row r lies
/// at chunk c ^ (r & 7). This is wgmma's 128-byte swizzle and free of conflicts for ldmatrix.
__device__ __forceinline__ uint32_t swizzled_offset(int row, int chunk) {
  return static_cast<uint32_t>(row * 128 + ((chunk ^ (row & 7)) << 4));
}

/// Returns the byte at which 16-byte chunk `chunk` of row `row` begins in a tile of tile_bytes.h.
__device__ __forceinline__ uint32_t tile_offset(int row, int chunk) {
  return static_cast<uint32_t>((chunk >> 3) * kTileLines * 128) + swizzled_offset(row, chunk & 7);
}
__device__ __forceinline__ uint32_t element_offset(int row, int column) {
  return tile_offset(row, column >> 3) + static_cast<uint32_t>(column & 7) * 2;
}

/// Copies lines [begin, end) of a [64, kColumns] tile from rows `stride` elements apart; the other
/// lines become zero. All kThreads threads of the block.
template <int kColumns, int kThreads>
__device__ __forceinline__ void copy_tile_lines(uint32_t to, const uint16_t* from, int64_t stride,
                                                int begin, int end) {
  constexpr int kChunks = kColumns / 8;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kTileLines * kChunks; i += kThreads) {
    const int row = i / kChunks;
    const int chunk = i % kChunks;
    const bool valid = row >= begin && row < end;
    const uint16_t* line = valid ? from + row * stride + chunk * 8 : from + begin * stride;
    copy_async_16(to + tile_offset(row, chunk), line, valid ? 16 : 0);
  }
}

/// Copies 64 adjacent rows of kColumns. All kThreads threads; one address, the rest are constants.
template <int kColumns, int kThreads>
__device__ __forceinline__ void copy_tile_rows(uint32_t to, const uint16_t* from) {
  constexpr int kChunks = kColumns / 8;
  constexpr int kRows = kThreads / kChunks;  // rows that one pass copies
  static_assert(kRows % 8 == 0);
  const int row = static_cast<int>(threadIdx.x) / kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  to += tile_offset(row, chunk);
  from += row * kColumns + chunk * 8;
#pragma unroll
  for (int i = 0; i < kTileLines / kRows; ++i)
    copy_async_16(to + i * kRows * 128, from + i * kRows * kColumns, 16);
}

/// Copies a tile that lies in global memory as it will lie here. All kThreads threads.
template <int kBytes, int kThreads>
__device__ __forceinline__ void copy_image(uint32_t to, const void* from) {
  static_assert(kBytes % 16 == 0);
  const auto* at = static_cast<const uint8_t*>(from) + threadIdx.x * 16;
  to += threadIdx.x * 16;
#pragma unroll
  for (int i = 0; i < kBytes; i += kThreads * 16)
    if (i + kThreads * 16 <= kBytes || threadIdx.x * 16 + i < kBytes)
      copy_async_16(to + i, at + i, 16);
}

/// Loads the left operand [16, 16] that has rows row0.. and columns column0.. of a tile.
__device__ __forceinline__ void load_left(uint32_t (&a)[4], uint32_t tile, int row0, int column0) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  load_matrix_4(a, tile + tile_offset(row0 + (lane & 15), (column0 >> 3) + (lane >> 4)));
}
/// Loads the left operand [16, 16] = tile^T: the rows of the operand are columns of the tile.
__device__ __forceinline__ void load_left_transposed(uint32_t (&a)[4], uint32_t tile, int row0,
                                                     int column0) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int tile_row = column0 + (lane & 7) + (lane >> 4 << 3);
  load_matrix_4_transposed(a, tile + tile_offset(tile_row, (row0 >> 3) + (lane >> 3 & 1)));
}
/// Loads the right operand [16 (k), 16 (n)] = tile^T: n counts rows of the tile, k its columns.
__device__ __forceinline__ void load_right_rows(uint32_t (&b)[4], uint32_t tile, int k0, int n0) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int row = n0 + (lane & 7) + (lane >> 4 << 3);
  load_matrix_4(b, tile + tile_offset(row, (k0 >> 3) + (lane >> 3 & 1)));
}
/// Loads the right operand [16 (k), 16 (n)]: k counts rows of the tile, n its columns.
__device__ __forceinline__ void load_right(uint32_t (&b)[4], uint32_t tile, int k0, int n0) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  load_matrix_4_transposed(b, tile + tile_offset(k0 + (lane & 15), (n0 >> 3) + (lane >> 4)));
}

}  // namespace nibble::cuda
