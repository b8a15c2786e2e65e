// WebPDemux is null for damage and for failed allocations alike.
#include "media/formats/webp_demuxer.h"

namespace nibble {

Result<WebpDemuxer> open_webp(ImageBytes bytes) {
  const WebPData data = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  const AllocationWatch memory;
  WebpDemuxer demuxer(WebPDemux(&data));
  if (demuxer) return demuxer;
  if (memory.failed()) return short_of_memory();
  return damaged_image("WebP", Damage::data);
}

}  // namespace nibble
