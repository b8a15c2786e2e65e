// Shapes of vision towers and frames for their check and timings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/cuda/ops/vision/vision.h"

namespace nibble::bench {

using cuda::FramePlace;
using cuda::kVisionQueries;
using cuda::VisionTile;

struct Tower {
  int heads;
  int head_dim;
  int inner;  // of the feed-forward block
  int layers;
  int side;  // of the position table
  int width() const { return heads * head_dim; }
  int padded() const { return (width() + 63) / 64 * 64; }
};
inline constexpr Tower kLarge = {
    .heads = 16, .head_dim = 72, .inner = 4304, .layers = 27, .side = 48};
inline constexpr Tower kSmall = {.heads = 3, .head_dim = 32, .inner = 192, .layers = 3, .side = 8};
inline constexpr Tower kMiddle = {
    .heads = 16, .head_dim = 64, .inner = 4096, .layers = 24, .side = 48};

struct Frame {
  int rows;
  int columns;
};

/// The patches of some frames, one after the other, in merge order.
inline std::vector<FramePlace> places_of(const std::vector<Frame>& frames) {
  std::vector<FramePlace> places;
  for (const Frame& frame : frames)
    for (int y = 0; y < frame.rows; y += 2)
      for (int x = 0; x < frame.columns; x += 2)
        for (int i = 0; i < 4; ++i)
          places.push_back({.row = static_cast<int16_t>(y + i / 2),
                            .column = static_cast<int16_t>(x + i % 2),
                            .rows = static_cast<int16_t>(frame.rows),
                            .columns = static_cast<int16_t>(frame.columns)});
  return places;
}
inline std::vector<VisionTile> tiles_of(const std::vector<Frame>& frames) {
  std::vector<VisionTile> tiles;
  int begin = 0;
  for (const Frame& frame : frames) {
    const int end = begin + frame.rows * frame.columns;
    for (int at = begin; at < end; at += kVisionQueries)
      tiles.push_back({.query_begin = at,
                       .query_end = std::min(at + kVisionQueries, end),
                       .frame_begin = begin,
                       .frame_end = end});
    begin = end;
  }
  return tiles;
}

/// Prints the time of each operation of a layer, and of all layers, for these frames.
void time_tower(const char* name, const Tower& tower, const std::vector<Frame>& frames,
                const cuda::Launcher& launcher);

}  // namespace nibble::bench
