// Bicubic resizing with antialiasing, equal in every bit to one of two libraries.
#pragma once

#include "media/image_decoder.h"

namespace nibble {

enum class ResizeArithmetic {
  pillow,       // Image.resize(size, BICUBIC) of Pillow 13: images
  torchvision,  // resize(uint8, BICUBIC, antialias=True) on a CPU: frames of videos
};

/// `image` at another size; both are at least 1 x 1. A direction whose size stays is left alone.
/// Holds up to `from.height * to.width` pixels besides the result.
RgbImage resize_bicubic(const RgbImage& image, const ImageSize& to, ResizeArithmetic arithmetic);

}  // namespace nibble
