// The decoders of single formats behind image_decoder.h, before orientation. Each pair agrees on
// the size; a size is held against the limits between the two calls, so that nothing large is
// allocated for a header that lies.
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>

#include "base/result.h"
#include "media/image_decoder.h"

namespace nibble {

using ImageBytes = std::span<const std::byte>;

/// Knows the time by which decoding has to be done.
class DecodeClock {
 public:
  explicit DecodeClock(int milliseconds)
      : milliseconds_(milliseconds),
        end_(std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds)) {}
  bool expired() const { return std::chrono::steady_clock::now() >= end_; }
  Error error() const;

 private:
  int milliseconds_;
  std::chrono::steady_clock::time_point end_;
};

enum class Damage { data, truncated };
/// "image: expected a whole FORMAT file, found ...".
Error damaged_image(std::string_view format, Damage damage);
/// ErrorCode::no_memory, in the same words whatever ran out.
Error short_of_memory();

/// Tells whether an allocation failed since it was made. Libraries in C often call that damage, but
/// malloc sets errno (POSIX).
class AllocationWatch {
 public:
  AllocationWatch() { errno = 0; }
  bool failed() const { return errno == ENOMEM; }
};

Error unsupported_image(std::string_view format, std::string_view expected, std::string_view found);

/// A colour that stands for transparency; the low 8 bits of each part count. transformers blends
/// what Pillow still marks so with white.
using TransparentKey = std::array<int, 3>;
void whiten(RgbImage& image, const TransparentKey& key);

Result<ImageSize> jpeg_size(ImageBytes bytes, const DecodeClock& clock);
Result<RgbImage> decode_jpeg(ImageBytes bytes, const ImageSize& size, const DecodeClock& clock);

Result<ImageSize> png_size(ImageBytes bytes, const DecodeClock& clock);
Result<RgbImage> decode_png(ImageBytes bytes, const ImageSize& size, const DecodeClock& clock);

Result<ImageSize> webp_size(ImageBytes bytes, const DecodeClock& clock);
Result<RgbImage> decode_webp(ImageBytes bytes, const ImageSize& size, const DecodeClock& clock);

Result<ImageSize> gif_size(ImageBytes bytes, const DecodeClock& clock);
Result<RgbImage> decode_gif(ImageBytes bytes, const ImageSize& size, const DecodeClock& clock);

}  // namespace nibble
