// Orientation and transparency of a PNG file, found as Pillow finds them. Pixels are for
// png_decoder.cc and libpng.
#pragma once

#include <string>

#include "media/format_decoders.h"

namespace nibble {

struct PngChunks {
  std::string transparency;  // tRNS as it is; empty: none
  std::string exif;          // eXIf, or a text "exif"
  std::string raw_profile;   // the text "Raw profile type exif": hexadecimal lines
  std::string xmp;
};

/// Walks over all chunks up to IEND or the end. A chunk of these that is damaged, or larger than 1
/// MiB when inflated, counts as absent; of several the last counts.
PngChunks read_png_chunks(ImageBytes bytes);

}  // namespace nibble
