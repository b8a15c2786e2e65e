// WebP through libwebp: the canvas, and the first frame on it.
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "media/format_decoders.h"

namespace nibble {
namespace {

constexpr size_t kStepBytes = 128 << 10;  // of the file between two looks at the clock

/// The file taken apart; empty if it is damaged or truncated.
class WebpFile {
 public:
  explicit WebpFile(ImageBytes bytes) {
    const WebPData data = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
    demuxer_.reset(WebPDemux(&data));
    found_ = demuxer_ && WebPDemuxGetFrame(demuxer_.get(), 1, &frame_);
  }
  WebpFile(const WebpFile&) = delete;
  WebpFile& operator=(const WebpFile&) = delete;
  ~WebpFile() {
    if (found_) WebPDemuxReleaseIterator(&frame_);
  }
  bool fine() const { return found_; }
  ImageSize size() const {
    return {.width = static_cast<int>(WebPDemuxGetI(demuxer_.get(), WEBP_FF_CANVAS_WIDTH)),
            .height = static_cast<int>(WebPDemuxGetI(demuxer_.get(), WEBP_FF_CANVAS_HEIGHT))};
  }
  const WebPIterator& frame() const { return frame_; }

 private:
  struct Free {
    void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
  };
  std::unique_ptr<WebPDemuxer, Free> demuxer_;
  WebPIterator frame_ = {};
  bool found_ = false;
};

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
  if (!decoder) return damaged_image("WebP", Damage::data);
  VP8StatusCode status = VP8_STATUS_SUSPENDED;
  for (size_t given = 0; status == VP8_STATUS_SUSPENDED && given < frame.fragment.size;) {
    if (clock.expired()) return clock.error();
    given = std::min(given + kStepBytes, frame.fragment.size);
    status = WebPIUpdate(decoder.get(), frame.fragment.bytes, given);
  }
  if (status == VP8_STATUS_OK) return {};
  return damaged_image("WebP", status == VP8_STATUS_SUSPENDED ? Damage::truncated : Damage::data);
}

}  // namespace

Result<ImageSize> webp_size(ImageBytes bytes, const DecodeClock&) {
  const WebpFile file(bytes);
  if (!file.fine()) return damaged_image("WebP", Damage::data);
  return file.size();
}

Result<RgbImage> decode_webp(ImageBytes bytes, const ImageSize& size, const DecodeClock& clock) {
  const WebpFile file(bytes);
  CHECK(file.fine() && file.size() == size, size.width, " x ", size.height);
  const WebPIterator& frame = file.frame();
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
