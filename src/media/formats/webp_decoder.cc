// WebP through libwebp: the canvas, and the first frame on it.
#include <webp/decode.h>

#include <algorithm>
#include <memory>

#include "media/formats/webp_demuxer.h"

namespace nibble {
namespace {

/// The clock is looked at after so many bytes of the file.
constexpr size_t kStepBytes = 128 << 10;

/// The first frame of a file.
class WebpFrame {
 public:
  explicit WebpFrame(const WebpDemuxer& demuxer)
      : found_(WebPDemuxGetFrame(demuxer.get(), 1, &frame_)) {}
  WebpFrame(const WebpFrame&) = delete;
  WebpFrame& operator=(const WebpFrame&) = delete;
  ~WebpFrame() {
    if (found_) WebPDemuxReleaseIterator(&frame_);
  }
  bool found() const { return found_; }
  const WebPIterator& operator*() const { return frame_; }

 private:
  WebPIterator frame_ = {};
  bool found_ = false;
};

ImageSize canvas_of(const WebpDemuxer& demuxer) {
  return {.width = static_cast<int>(WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH)),
          .height = static_cast<int>(WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT))};
}

struct FreeDecoder {
  void operator()(WebPIDecoder* decoder) const { WebPIDelete(decoder); }
};

/// Decodes the frame to its place in `image`, a step of its bytes at a time.
Result<void> decode_frame(const WebPIterator& frame, const DecodeClock& clock, RgbImage& image) {
  WebPDecoderConfig config;
  CHECK(WebPInitDecoderConfig(&config), "libwebp is of another version than its headers");
  const size_t stride = size_t{3} * image.width;
  const size_t start = frame.y_offset * stride + size_t{3} * frame.x_offset;
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = image.pixels.data() + start;
  config.output.u.RGBA.stride = static_cast<int>(stride);
  config.output.u.RGBA.size = image.pixels.size() - start;
  const std::unique_ptr<WebPIDecoder, FreeDecoder> decoder(WebPIDecode(nullptr, 0, &config));
  if (!decoder) return short_of_memory();
  VP8StatusCode status = VP8_STATUS_SUSPENDED;
  const AllocationWatch memory;
  for (size_t given = 0; status == VP8_STATUS_SUSPENDED && given < frame.fragment.size;) {
    if (clock.expired()) return clock.error();
    given = std::min(given + kStepBytes, frame.fragment.size);
    status = WebPIUpdate(decoder.get(), frame.fragment.bytes, given);
  }
  if (status == VP8_STATUS_OK) return {};
  if (memory.failed()) return short_of_memory();
  return damaged_image("WebP", status == VP8_STATUS_SUSPENDED ? Damage::truncated : Damage::data);
}

}  // namespace

Result<ImageSize> webp_size(ImageBytes bytes, const DecodeClock&) {
  const WebpDemuxer demuxer = TRY(open_webp(bytes));
  if (!WebpFrame(demuxer).found()) return damaged_image("WebP", Damage::data);
  return canvas_of(demuxer);
}

Result<RgbImage> decode_webp(ImageBytes bytes, const ImageSize& size, const DecodeClock& clock) {
  const WebpDemuxer demuxer = TRY(open_webp(bytes));
  const WebpFrame first(demuxer);
  CHECK(first.found() && canvas_of(demuxer) == size, size.width, " x ", size.height);
  const WebPIterator& frame = *first;
  const bool inside = frame.width > 0 && frame.height > 0 && frame.x_offset >= 0 &&
                      frame.y_offset >= 0 && frame.x_offset <= size.width - frame.width &&
                      frame.y_offset <= size.height - frame.height;
  WebPBitstreamFeatures features;
  if (!inside ||
      WebPGetFeatures(frame.fragment.bytes, frame.fragment.size, &features) != VP8_STATUS_OK ||
      features.width != frame.width || features.height != frame.height)
    return damaged_image("WebP", Damage::data);
  RgbImage image = make_image(size);
  TRY(decode_frame(frame, clock, image));
  return image;
}

}  // namespace nibble
