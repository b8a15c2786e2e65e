// The tokens that stand for images in a prompt: a template writes one for each image, the model
// takes as many as the image has rows. Token ids only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace nibble {

/// The tokens [begin, begin + count) of a prompt, which stand for one image.
struct ImageTokens {
  int32_t begin = 0;
  int32_t count = 0;
  bool operator==(const ImageTokens&) const = default;
};

/// Makes of each `image_token` in `prompt` as many as the image in that place has rows, and returns
/// where they are then. Errors: invalid_argument where there are not as many of them as images.
Result<std::vector<ImageTokens>> expand_placeholders(std::vector<int32_t>& prompt,
                                                     int32_t image_token,
                                                     std::span<const int64_t> rows);

/// The number of tokens of an expanded prompt that the first `tokens` of the prompt before became.
int32_t expanded_length(int32_t tokens, std::span<const ImageTokens> images);

/// The prompt with one token for each image, as the template wrote it.
std::vector<int32_t> without_expansion(std::span<const int32_t> prompt,
                                       std::span<const ImageTokens> images);

}  // namespace nibble
