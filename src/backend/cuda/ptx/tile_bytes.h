// The size of a tile in shared memory (shared_tile.cuh), for host and device.
#pragma once

namespace nibble::cuda {

inline constexpr int kTileLines = 64;

/// A [64, columns] BF16 tile: panels of 64 columns, 128-byte swizzled rows.
constexpr int tile_bytes(int columns) { return (columns + 63) / 64 * kTileLines * 128; }

}  // namespace nibble::cuda
