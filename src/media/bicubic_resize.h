// Bicubic resizing with antialiasing, equal to Pillow's Image.resize(size, BICUBIC) in every bit.
#pragma once

#include "media/image_decoder.h"

namespace nibble {

/// `image` at another size; both are at least 1 x 1. A direction whose size stays is left alone.
/// Holds up to `from.height * to.width` pixels besides the result.
RgbImage resize_bicubic(const RgbImage& image, const ImageSize& to);

}  // namespace nibble
