// A video that comes as its frames: a list of encoded images, without a file around them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "media/image_decoder.h"
#include "media/video/video_decoder.h"

namespace nibble {

struct FrameListLimits {
  ImageLimits each;
  VideoLimits whole;  // decode_ms_max alone
};

/// Takes every frame, at processor.fps; at most one decoded frame is held, beside the patches.
/// Errors: invalid_argument beyond a limit, for no frames and for frames of several sizes; those of
/// read_image_size and decode_image, with the number of the frame, from 1; those of `judge`;
/// cancelled; no_memory.
Result<PreparedVideo> prepare_frames(std::span<const std::vector<std::byte>> files,
                                     const FrameListLimits& limits, const VideoProcessor& processor,
                                     const VideoJudge& judge,
                                     const std::function<bool()>& cancelled);

}  // namespace nibble
