// Shapes of vision towers and frames for their check and timings.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/ops/vision/vision.h"

namespace nibble::checks {

using cuda::FramePlace;

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
/// The first row after each frame.
inline std::vector<int> ends_of(const std::vector<Frame>& frames) {
  std::vector<int> ends;
  for (const Frame& frame : frames)
    ends.push_back((ends.empty() ? 0 : ends.back()) + frame.rows * frame.columns);
  return ends;
}
/// Attention of all rows, a launch for each frame; `out` is row 0 of the first one.
inline void attend_frames(cuda::VisionAttention attention, const std::vector<int>& ends,
                          const cuda::Launcher& launcher) {
  uint16_t* out = attention.out;
  int begin = 0;
  for (const int end : ends) {
    attention.query_begin = attention.frame_begin = begin;
    attention.query_end = attention.frame_end = end;
    attention.out = out + begin * attention.stride;
    cuda::vision_attention(attention, launcher);
    begin = end;
  }
}

}  // namespace nibble::checks
