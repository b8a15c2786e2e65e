// Pixels to what the vision tower reads: resized, cut into patches in merge order, normalised.
// Equal in every bit of pixel_values to transformers: for images Qwen2VLImageProcessor in its PIL
// backend, for videos Qwen3VLVideoProcessor, which has torchvision's alone.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "media/image_processor.h"
#include "media/video_processor.h"

namespace nibble {

/// 128 bits of a SHA-256, as MediaSpan of the prefix cache takes them.
using MediaDigest = std::array<uint64_t, 2>;

/// One image or video as patches. Rows are in merge order: for every temporal patch, for every
/// window of merge x merge patches (row by row), its patches (row by row), so that the rows of one
/// token are adjacent. Levels are kept, not values, which are four times as large: the row of
/// pixel_values is values[channel][level].
struct ImagePatches {
  ImageGrid grid;
  int patch = 0;     // pixels along an edge
  int temporal = 0;  // frames of a row; a still image has each of its pixels so many times
  std::vector<uint8_t> levels;  // [grid.patches(), 3, temporal, patch, patch], after resizing
  std::array<std::array<float, 256>, 3> values = {};  // [channel][level]
  /// Over levels, values, grid and the sizes of a patch: equal digests mean equal rows. The
  /// settings that only choose the grid (min_pixels, max_pixels) are in it through the grid.
  MediaDigest digest = {};
};

/// Resizes and cuts one still image.
/// Errors: those of grid_of; no_memory.
Result<ImagePatches> prepare_image(const RgbImage& image, const ImageProcessor& processor);

/// Resizes and cuts the frames of a video that were taken (sampled_frames), all of one size. Gives
/// one for each temporal patch, with a grid of t = 1 and a digest of its own: in a prompt times
/// stand between them. A last temporal patch that is not full repeats the last frame.
/// Errors: those of video_grid; invalid_argument for frames of several sizes; no_memory.
Result<std::vector<ImagePatches>> prepare_video(std::span<const RgbImage> frames,
                                                const VideoProcessor& processor);

/// The same with the frames one after another, of which none is kept in its own size.
class VideoCutter {
 public:
  /// For so many frames of this size. Errors: those of video_grid; no_memory.
  static Result<VideoCutter> begin(const ImageSize& size, int64_t frames,
                                   const VideoProcessor& processor);
  /// Errors: invalid_argument for a frame too many or one of another size; no_memory.
  Result<void> add(const RgbImage& frame);
  int64_t taken() const { return taken_; }
  /// Errors: invalid_argument if frames are missing.
  Result<std::vector<ImagePatches>> finish() &&;

 private:
  VideoCutter(const ImageSize& size, int64_t frames, const ImageGrid& grid,
              const ImageProcessor& processor);
  void cut_group();

  ImageSize size_;
  int64_t frames_;
  ImageGrid grid_;  // of one temporal patch
  ImageProcessor processor_;
  std::vector<ImagePatches> patches_;
  std::vector<RgbImage> resized_;  // images of the temporal patch that is not yet full
  int64_t taken_ = 0;
};

}  // namespace nibble
