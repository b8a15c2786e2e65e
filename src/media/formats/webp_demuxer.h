// A WebP file taken apart by libwebpdemux: frames and chunks, no pixels.
#pragma once

#include <webp/demux.h>

#include <memory>

#include "media/formats/format_decoders.h"

namespace nibble {

struct FreeWebpDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
using WebpDemuxer = std::unique_ptr<WebPDemuxer, FreeWebpDemuxer>;

/// Reads `bytes`, which have to outlive the result. Errors: corrupt for a damaged or truncated
/// file; no_memory.
Result<WebpDemuxer> open_webp(ImageBytes bytes);

}  // namespace nibble
