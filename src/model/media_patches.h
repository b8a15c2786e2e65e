// An image or a piece of a video as the vision tower takes it, and the rotary positions of the rows
// that it becomes. Made by preprocessing (src/media); nothing here decodes a file.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/config/vision_config.h"

namespace nibble {

inline constexpr int32_t kMediaEdgeMax = 1 << 14;  // patches along one axis

/// Patches along time, height and width. Height and width are multiples of VisionConfig::merge.
struct MediaGrid {
  int32_t t = 0;
  int32_t h = 0;
  int32_t w = 0;
  int64_t frame_patches() const { return int64_t{h} * w; }
  int64_t patches() const { return t * frame_patches(); }
  /// Rows of the text model, and so placeholder tokens.
  int64_t rows(int merge) const { return patches() / (int64_t{merge} * merge); }
  bool operator==(const MediaGrid&) const = default;
};

/// The pixels of a grid, cut into patches, normalised by a table.
struct MediaPatches {
  MediaGrid grid;
  /// [t * h * w, VisionConfig::patch_values()] 8-bit levels after resizing. Patches in merge order:
  /// (t, h / merge, w / merge, merge, merge); numbers of one: (channel, frame, row, column). A
  /// still image has each of its pixels temporal_patch times.
  std::vector<uint8_t> levels;
  /// The number that a level of a channel stands for: (level / 255 - mean) / std, rounded as the
  /// checkpoint's image processor does.
  std::array<std::array<float, 256>, 3> values = {};
};

/// Succeeds if a tower can encode it into so many rows. Errors: invalid_argument.
Result<void> check_patches(const MediaPatches& media, const VisionConfig& vision, int32_t rows);

/// A grid and the first of the prompt's tokens that stand for it.
struct PlacedGrid {
  int32_t begin = 0;
  MediaGrid grid;
};

/// Rotary positions (t, h, w) of a prompt of `tokens` tokens: a text token is (s, s, s) and takes
/// s on by one; row (a, b, c) of a merged grid (T, H, W) is (s + a, s + b, s + c), the grid takes s
/// on by max(H, W). `grids` ascending, disjoint, within the prompt.
/// Source: transformers' get_rope_index.
std::vector<std::array<int32_t, 3>> media_positions(int32_t tokens,
                                                    std::span<const PlacedGrid> grids, int merge);

}  // namespace nibble
