// Pixels in memory, and sizes in pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nibble {

struct ImageSize {
  int width = 0;
  int height = 0;
  bool operator==(const ImageSize&) const = default;
};

struct RgbImage {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> pixels;  // [height, width, 3]: red, green, blue
};

/// An image of this size, all black. Throws std::bad_alloc.
inline RgbImage make_image(const ImageSize& size) {
  RgbImage image{.width = size.width, .height = size.height, .pixels = {}};
  image.pixels.resize(size_t{3} * size.width * size.height);
  return image;
}

}  // namespace nibble
