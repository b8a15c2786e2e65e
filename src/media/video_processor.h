// VideoProcessor: the settings of transformers' Qwen3VLVideoProcessor, read from a checkpoint's
// video_preprocessor_config.json, and the arithmetic of frames: which are taken, at which size, and
// the times that stand in the prompt. It touches no pixels.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "media/image_processor.h"

namespace nibble {

struct VideoProcessor {
  /// Patches, values, and the bounds on the area, here of all frames together.
  ImageProcessor frame;
  double fps = 2;  // frames to take from a second
  int min_frames = 4;
  int max_frames = 768;
  /// Also bound each frame by max_frame_tokens, and the video from below per frame.
  bool cap_pixels_per_frame = false;
  int max_frame_tokens = 768;
};

/// Reads video_preprocessor_config.json, or the member "video_processor" of a
/// processor_config.json. Errors: as parse_image_processor's.
Result<VideoProcessor> parse_video_processor(const Json& config, std::string_view source);

/// The processor of a checkpoint's folder, in transformers' order of files. Empty if there is none.
Result<std::optional<VideoProcessor>> load_video_processor(const std::string& folder);

/// The frames to take of a video of so many at `source_fps` a second: ascending, evenly spread, the
/// first and the last among them (transformers' sample_frames).
/// Errors: invalid_argument for no frames, or a rate that is not above 0 and at most 1000.
Result<std::vector<int64_t>> sampled_frames(int64_t frames, double source_fps,
                                            const VideoProcessor& processor);

/// Seconds of each temporal patch: the mean of its first and last frame's. The last frame stands
/// for those that are missing in the last patch. In the prompt they are "<%.1f seconds>".
std::vector<double> frame_times(std::span<const int64_t> frames, double source_fps, int temporal);

/// The size that frames are resized to, so many of this size.
/// Errors: invalid_argument for no frames, an edge below 1, an aspect ratio over 200.
Result<ImageSize> resized_video(const ImageSize& size, int64_t frames,
                                const VideoProcessor& processor);

/// The patches of so many frames of this size.
Result<ImageGrid> video_grid(const ImageSize& size, int64_t frames,
                             const VideoProcessor& processor);

}  // namespace nibble
