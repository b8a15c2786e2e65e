// Encoded image bytes to pixels, equal to Pillow's Image.open, ImageOps.exif_transpose and
// convert("RGB"), as transformers' load_image calls them: alpha is dropped, not blended; colour
// profiles are not applied; of an animation the first frame counts. Hostile bytes are expected
// here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "media/rgb_image.h"

namespace nibble {

/// Bounds on the work of a decoder. Sizes are taken from the header before anything of that size
/// is allocated; the time is looked at between rows, scans and frames.
struct ImageLimits {
  size_t encoded_bytes_max = size_t{20} << 20;
  int64_t pixels_max = 33'000'000;  // width x height
  int edge_max = 65'535;            // pixels
  int aspect_max = 200;             // longer edge / shorter edge
  int decode_ms_max = 10'000;
};

/// The bytes that decoding one image within `limits` holds at most, its result included: for
/// bounding how many are decoded at once.
int64_t decode_memory_max(const ImageLimits& limits);

/// The size after the EXIF orientation, from the headers alone: enough to count tokens (grid_of).
/// Errors: as decode_image's, for what headers can show.
Result<ImageSize> read_image_size(std::span<const std::byte> bytes, const ImageLimits& limits);

/// Errors: invalid_argument beyond a limit (with the number found and the limit), unsupported for
/// formats not taken, corrupt for damaged or truncated files, no_memory.
Result<RgbImage> decode_image(std::span<const std::byte> bytes, const ImageLimits& limits);

}  // namespace nibble
