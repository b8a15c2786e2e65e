// VideoProcessor: the settings of transformers' Qwen3VLVideoProcessor, read from a checkpoint's
// video_preprocessor_config.json, and the arithmetic of frames: which are taken, at which size, and
// the times that stand in the prompt. It touches no pixels.
#pragma once

#include <cstdint>
#include <limits>
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
  /// So many frames, in place of what fps, min_frames and max_frames say; a shorter video has all
  /// of its frames taken. A request may ask for it.
  std::optional<int> num_frames;
  /// Bounds the area of each resized frame too, as far as frames so narrow that one edge is
  /// factor() allow it. transformers knows no such bound; it is for what has memory for so much.
  int64_t frame_pixels_max = std::numeric_limits<int64_t>::max();
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

/// A video as far as it is known without its pixels.
struct VideoOutline {
  std::vector<int64_t> frames;  // indices of the frames that are taken
  std::vector<double> times;    // seconds of each temporal patch (frame_times)
  ImageGrid grid;               // t is times.size()
  int64_t patch_bytes = 0;      // bytes of the levels of all patches
  /// Placeholder tokens of one temporal patch.
  int64_t step_tokens = 0;
};

/// The outline of a video of so many frames of this size.
/// Errors: those of sampled_frames and video_grid.
Result<VideoOutline> outline_video(const ImageSize& size, int64_t frames, double source_fps,
                                   const VideoProcessor& processor);
/// The outline of frames that are all taken, at processor.fps.
/// Errors: those of video_grid; invalid_argument for more than processor.max_frames.
Result<VideoOutline> outline_frames(const ImageSize& size, int64_t frames,
                                    const VideoProcessor& processor);

}  // namespace nibble
