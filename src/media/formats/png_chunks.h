// Orientation and transparency of a PNG file, found as Pillow finds them. Pixels are for
// png_decoder.cc and libpng.
#pragma once

#include <string>
#include <string_view>

#include "media/formats/format_decoders.h"

namespace nibble {

/// Texts with a compressed value that are looked into: each may take a millisecond or two, and a
/// file has room for thousands.
inline constexpr int kPackedTextsMax = 16;

struct PngTexts {
  std::string exif;         // eXIf, or a text "exif"
  std::string raw_profile;  // the text "Raw profile type exif": hexadecimal lines
  std::string xmp;
};

/// Walks over all chunks up to IEND or the end. A chunk of these that is damaged, or larger than 1
/// MiB when inflated, counts as absent, and so does a compressed one after the first
/// kPackedTextsMax; of several the last counts. Errors: the clock's.
Result<PngTexts> read_png_texts(ImageBytes bytes, const DecodeClock& clock);

/// The data of the last tRNS that is not damaged, a part of `bytes`; empty: there is none. Errors:
/// the clock's.
Result<std::string_view> read_png_transparency(ImageBytes bytes, const DecodeClock& clock);

}  // namespace nibble
