// This header has the size of a tile in shared memory (shared_tile.cuh), for host and device.
#pragma once

namespace nibble::cuda {

inline constexpr int kTileLines = 64;

/// Returns the bytes of a [64, columns] BF16 tile, which is made of panels of 64 columns with
/// 128-byte swizzled rows.
constexpr int tile_bytes(int columns) { return (columns + 63) / 64 * kTileLines * 128; }

}  // namespace nibble::cuda
