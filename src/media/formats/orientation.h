// The orientation that a file asks for, found as Pillow's getexif() finds it.
#pragma once

#include <string_view>

#include "media/formats/format_decoders.h"
#include "media/image_format.h"

namespace nibble {

/// 1 to 8 as in EXIF's tag 274: 1 as it is, 2 mirrored, 3 turned by 180 degrees, 4 mirrored top to
/// bottom, 5 mirrored along the diagonal from the upper left, 6 turned right, 7 mirrored along the
/// other diagonal, 8 turned left. Damaged EXIF data counts as 1. Errors: the clock's; no_memory.
Result<int> read_orientation(ImageBytes bytes, ImageFormat format, const DecodeClock& clock);

/// The size, or the pixels, after that orientation.
ImageSize oriented(const ImageSize& size, int orientation);
RgbImage oriented(RgbImage image, int orientation);

}  // namespace nibble
