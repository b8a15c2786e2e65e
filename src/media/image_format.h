// Tells image formats apart by their first bytes, never by a declared type or a file name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace nibble {

enum class ImageFormat : uint8_t { jpeg, png, webp, gif };

/// Errors: unsupported for everything else, naming the format found if it is a known one (BMP,
/// TIFF, AVIF, HEIC, SVG...) and listing those that are taken; invalid_argument for no bytes.
Result<ImageFormat> sniff_image_format(std::span<const std::byte> bytes);

}  // namespace nibble
