// Fuzz entry: any bytes as an image. The headers and the pixels agree on the size, a decoded image
// keeps the limits and can be prepared. Sums of PNG chunks are corrected too, or no mutation of a
// PNG file would come further than the first of them.
#include <zlib.h>

#include <cstdint>
#include <cstring>

#include "media/image_patches.h"

namespace {

using Bytes = std::vector<uint8_t>;

uint32_t big_endian(const uint8_t* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
}

void correct_sums(Bytes& bytes) {
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const size_t length = big_endian(&bytes[at]);
    if (length > bytes.size() - at - 12) return;
    const auto sum = static_cast<uint32_t>(crc32_z(0, &bytes[at + 4], length + 4));
    for (int i = 0; i < 4; ++i)
      bytes[at + 8 + length + i] = static_cast<uint8_t>(sum >> (24 - 8 * i));
    at += length + 12;
  }
}

void use_image(const Bytes& bytes) {
  const nibble::ImageLimits limits{.pixels_max = 1 << 16, .decode_ms_max = 2000};
  const auto data = std::as_bytes(std::span(bytes));
  const auto size = nibble::read_image_size(data, limits);
  const auto image = nibble::decode_image(data, limits);
  if (!image.ok()) return;
  CHECK(size.ok() && size.value().width == image.value().width &&
            size.value().height == image.value().height,
        image.value().width, " x ", image.value().height);
  const int64_t pixels = int64_t{image.value().width} * image.value().height;
  CHECK(pixels <= limits.pixels_max && std::ssize(image.value().pixels) == 3 * pixels, pixels);
  nibble::ImageProcessor processor;
  processor.max_pixels = 4096;
  const auto patches = nibble::prepare_image(image.value(), processor);
  CHECK(patches.ok(), patches.error().message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, data + size);
  use_image(bytes);
  if (size > 8 && std::memcmp(data, "\x89PNG", 4) == 0) {
    correct_sums(bytes);
    use_image(bytes);
  }
  return 0;
}
