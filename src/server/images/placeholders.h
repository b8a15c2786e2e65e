// The tokens that stand for images and videos in a prompt: a template writes one image_pad for each
// image and vision_start, video_pad, vision_end for each video; the model takes as many as there
// are rows, and the times of a video's frames between them. Token ids only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace nibble {

/// The ids that a template writes for media.
struct MediaIds {
  int32_t image = 0;
  int32_t video = 0;
  int32_t vision_start = -1;
  int32_t vision_end = -1;
};

/// The tokens [begin, begin + count) of an expanded prompt, which stand for one image or one
/// temporal patch of a video.
struct MediaTokens {
  int32_t begin = 0;
  int32_t count = 0;
  bool operator==(const MediaTokens&) const = default;
};

/// The part of an expanded prompt that took the place of what the template wrote for one image or
/// video, the tokens `written`.
struct MediaPlace {
  int32_t begin = 0;  // in the expanded prompt
  int32_t count = 0;
  std::vector<int32_t> written;
  bool operator==(const MediaPlace&) const = default;
};

struct ExpandedMedia {
  std::vector<MediaPlace> places;                // ascending
  std::vector<MediaTokens> images;               // of each image
  std::vector<std::vector<MediaTokens>> videos;  // of each video, of each temporal patch
};

/// The tokens that a video puts into a prompt.
struct VideoTokens {
  std::vector<std::vector<int32_t>> times;  // ids of the time of each temporal patch
  int64_t rows = 0;                         // rows of each temporal patch
};

/// Makes of each image token in `prompt` as many as the image in that place has rows, and of each
/// video token, with vision_start before and vision_end behind it where they are there, for every
/// temporal patch its time, vision_start, as many video tokens as it has rows, and vision_end.
/// Returns where they are then. Errors: invalid_argument where there are not as many of either as
/// images and videos, or over 2^31 - 1 tokens in all; the prompt stays as it is.
Result<ExpandedMedia> expand_placeholders(std::vector<int32_t>& prompt, const MediaIds& ids,
                                          std::span<const int64_t> image_rows,
                                          std::span<const VideoTokens> videos);

/// The number of tokens of an expanded prompt that the first `tokens` of the prompt before became.
int32_t expanded_length(int32_t tokens, std::span<const MediaPlace> places);

/// The prompt as the template wrote it.
std::vector<int32_t> without_expansion(std::span<const int32_t> prompt,
                                       std::span<const MediaPlace> places);

}  // namespace nibble
