// The way through a decoder: format, size against the limits, pixels, orientation.
#include "media/image_decoder.h"

#include <algorithm>
#include <new>

#include "media/formats/format_decoders.h"
#include "media/formats/orientation.h"
#include "media/image_format.h"

namespace nibble {
namespace {

Error limit_error(std::string_view what, std::string_view limit, std::string_view found) {
  return make_error(ErrorCode::invalid_argument, {what, limit, found, "send a smaller image"});
}

Result<void> check_size(const ImageSize& size, const ImageLimits& limits) {
  const std::string found = concat(size.width, " x ", size.height, " pixels");
  const int64_t longer = std::max(size.width, size.height);
  const int64_t shorter = std::min(size.width, size.height);
  if (shorter < 1) return limit_error("image", "at least 1 x 1 pixels", found);
  if (longer > limits.edge_max)
    return limit_error("image", concat("edges of at most ", limits.edge_max, " pixels"), found);
  if (int64_t{size.width} * size.height > limits.pixels_max)
    return limit_error("image", concat("at most ", limits.pixels_max, " pixels"), found);
  if (longer > limits.aspect_max * shorter)
    return limit_error(
        "image", concat("a longer edge of at most ", limits.aspect_max, " shorter ones"), found);
  return {};
}

struct Decoder {
  Result<ImageSize> (*size)(ImageBytes, const DecodeClock&);
  Result<RgbImage> (*decode)(ImageBytes, const ImageSize&, const DecodeClock&);
};

Decoder decoder_of(ImageFormat format) {
  switch (format) {
    case ImageFormat::jpeg:
      return {jpeg_size, decode_jpeg};
    case ImageFormat::png:
      return {png_size, decode_png};
    case ImageFormat::webp:
      return {webp_size, decode_webp};
    case ImageFormat::gif:
      break;
  }
  return {gif_size, decode_gif};
}

/// An image whose headers are fine.
struct Opened {
  ImageFormat format = ImageFormat::jpeg;
  ImageSize size;  // before the orientation
  int orientation = 1;
};

Result<Opened> open_image(ImageBytes bytes, const ImageLimits& limits, const DecodeClock& clock) {
  if (bytes.size() > limits.encoded_bytes_max)
    return limit_error("image file", concat("at most ", limits.encoded_bytes_max, " bytes"),
                       concat(bytes.size()));
  Opened opened;
  opened.format = TRY(sniff_image_format(bytes));
  opened.size = TRY(decoder_of(opened.format).size(bytes, clock));
  TRY(check_size(opened.size, limits));
  opened.orientation = TRY(read_orientation(bytes, opened.format, clock));
  return opened;
}

}  // namespace

Error DecodeClock::error() const {
  return make_error(ErrorCode::invalid_argument,
                    {"image", concat("one that is decoded within ", milliseconds_, " ms"),
                     "one that takes longer", "send a smaller or simpler image"});
}

Error damaged_image(std::string_view format, Damage damage) {
  return make_error(ErrorCode::corrupt,
                    {"image", concat("a whole ", format, " file"),
                     damage == Damage::truncated ? "one that ends too early" : "a damaged one",
                     "check the file, or save the image anew"});
}

Error short_of_memory() {
  return make_error(ErrorCode::no_memory, {"decoding an image", "enough memory", "too little",
                                           "send a smaller image or fewer at once"});
}

Error unsupported_image(std::string_view format, std::string_view expected,
                        std::string_view found) {
  return make_error(ErrorCode::unsupported, {concat(format, " image"), expected, found,
                                             "save the image anew in a common form"});
}

void whiten(RgbImage& image, const TransparentKey& key) {
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    uint8_t* pixel = &image.pixels[i];
    if (pixel[0] == (key[0] & 255) && pixel[1] == (key[1] & 255) && pixel[2] == (key[2] & 255))
      std::fill(pixel, pixel + 3, uint8_t{255});
  }
}

int64_t decode_memory_max(const ImageLimits& limits) {
  // JPEG is the largest: 3 bytes a pixel of result, and of a progressive file up to four
  // coefficients of 2 bytes. The orientation needs a second result, when those are gone.
  return limits.pixels_max * 12 + static_cast<int64_t>(limits.encoded_bytes_max) + (32 << 20);
}

Result<ImageSize> read_image_size(std::span<const std::byte> bytes, const ImageLimits& limits) try {
  const DecodeClock clock(limits.decode_ms_max);
  const Opened opened = TRY(open_image(bytes, limits, clock));
  return oriented(opened.size, opened.orientation);
} catch (const std::bad_alloc&) {
  return short_of_memory();
}

Result<RgbImage> decode_image(std::span<const std::byte> bytes, const ImageLimits& limits) try {
  const DecodeClock clock(limits.decode_ms_max);
  const Opened opened = TRY(open_image(bytes, limits, clock));
  RgbImage image = TRY(decoder_of(opened.format).decode(bytes, opened.size, clock));
  return oriented(std::move(image), opened.orientation);
} catch (const std::bad_alloc&) {
  return short_of_memory();
}

}  // namespace nibble
