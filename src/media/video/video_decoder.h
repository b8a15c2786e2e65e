// Videos of strangers to frames, by the system's ffprobe and ffmpeg. They read a sealed file in
// memory that is their standard input, know no path and no address of a client, run within limits
// of time, memory and output, as far from the system as VideoIsolation says, and end with the call.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "media/image_patches.h"
#include "media/video/video_probe.h"
#include "media/video/video_programs.h"
#include "media/video_processor.h"

namespace nibble {

/// A video as the vision tower and the prompt take it.
struct PreparedVideo {
  VideoOutline outline;
  std::vector<ImagePatches> patches;  // one for each temporal patch, as prepare_video's
};

/// Refuses a video by its outline, before anything of its size is allocated or decoded. Empty:
/// nothing is refused. Asked again where a file turns out to have fewer frames than it counts.
using VideoJudge = std::function<Result<void>(const VideoOutline&)>;

class VideoDecoder {
 public:
  VideoDecoder(VideoPrograms programs, const VideoLimits& limits)
      : programs_(std::move(programs)), limits_(limits) {}

  /// Size, count of frames and rate, without decoding.
  /// Errors: unsupported for containers not taken (sniff_video_format); invalid_argument beyond a
  /// limit or without a video stream; corrupt for damaged files; cancelled; io; no_memory.
  Result<VideoFacts> probe(std::span<const std::byte> bytes,
                           const std::function<bool()>& cancelled) const;

  /// Takes the frames that the processor samples, resizes and cuts them one by one: at most one
  /// frame of the file is held, beside the patches. Errors: as probe's, those of `judge`, and
  /// prepare_video's.
  Result<PreparedVideo> prepare(std::span<const std::byte> bytes, const VideoProcessor& processor,
                                const VideoJudge& judge,
                                const std::function<bool()>& cancelled) const;

 private:
  struct Input;
  Result<VideoFacts> count(const Input& input, const char* how) const;
  Result<std::vector<ImagePatches>> decode(const Input& input, const VideoOutline& outline,
                                           const VideoProcessor& processor) const;

  VideoPrograms programs_;
  VideoLimits limits_;
};

}  // namespace nibble
