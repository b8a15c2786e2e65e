// The settings that one request may change of the checkpoint's processors: the bounds on the area,
// and the frames that are taken of a video.
#pragma once

#include <cstdint>
#include <optional>

#include "base/json.h"
#include "base/result.h"
#include "media/image_processor.h"
#include "media/video_processor.h"

namespace nibble {

/// `processor` with what a request's `mm_processor_kwargs` says: min_pixels, max_pixels, or size
/// with shortest_edge and longest_edge (areas). They hold for images and, of all frames together,
/// for videos, as in transformers; what stands in the members images_kwargs and videos_kwargs holds
/// for one of them and goes before.
/// Errors: invalid_argument for unknown keys and for values out of range.
Result<ImageProcessor> with_request_settings(const ImageProcessor& processor, const Json& kwargs);

/// The same of videos, with fps or num_frames, of which nobody gets more than processor.max_frames,
/// and do_sample_frames, which may be true alone.
Result<VideoProcessor> with_request_settings(const VideoProcessor& processor, const Json& kwargs);

/// Frames a second, where a request or a flag says them; nothing: it is no number from
/// kFrameRateMin to kFrameRateMax. Times in a prompt are frames over the rate, so the least bounds
/// them too.
inline constexpr double kFrameRateMin = 0.001, kFrameRateMax = 1000;
std::optional<double> frame_rate(const Json& value);

/// `processor` with these bounds on the area, where they are given. Nobody gets more than
/// processor.max_pixels, but for images so narrow that one edge is factor(): where transformers
/// rounds up beyond the largest area, these round down (keep_max).
/// Errors: invalid_argument unless factor()^2 <= max <= processor.max_pixels and 1 <= min <= max.
Result<ImageProcessor> with_pixels(const ImageProcessor& processor,
                                   std::optional<int64_t> min_pixels,
                                   std::optional<int64_t> max_pixels);

}  // namespace nibble
