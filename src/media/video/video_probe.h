// VideoFacts: size, length and rate of a video, as ffprobe says them.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "media/image_decoder.h"

namespace nibble {

/// Bounds on one video and on the programs that decode it.
struct VideoLimits {
  size_t encoded_bytes_max = size_t{32} << 20;
  int64_t pixels_max = 4096 * 2304;  // pixels of a frame
  int edge_max = 8192;               // pixels
  double seconds_max = 3600;
  int frames_max = 4096;                        // taken of one video
  int decode_ms_max = 60'000;                   // for each program
  int cpu_seconds_max = 60;                     // likewise
  int64_t memory_bytes_max = int64_t{4} << 30;  // address space, likewise
};

struct VideoFacts {
  ImageSize size;      // size of a frame, after the rotation that the file asks for
  int64_t frames = 0;  // frames counted in the file
  double fps = 0;      // frames a second, on average
};

/// Reads ffprobe's JSON of the first video stream (kProbeEntries). Without an average rate it is
/// frames / duration, else the stream's base rate, else 24, transformers' default.
/// Errors: invalid_argument without a video stream or beyond a limit; corrupt if the JSON is not
/// what ffprobe writes.
Result<VideoFacts> parse_probe(std::string_view json, const VideoLimits& limits);

/// The argument of ffprobe's -show_entries that parse_probe needs.
inline constexpr std::string_view kProbeEntries =
    "stream=width,height,avg_frame_rate,r_frame_rate,duration,nb_read_packets,nb_read_frames"
    ":format=duration:stream_side_data=rotation";

}  // namespace nibble
