// The decoders of single formats behind image_decoder.h, before orientation. Each pair agrees on
// the size; a size is held against the limits between the two calls, so that nothing large is
// allocated for a header that lies.
#pragma once

#include <time.h>

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

/// Knows when decoding has taken too much of its thread's processor time. Time in which the thread
/// does not run, on a busy machine or on one that stands still, is not the image's.
class DecodeClock {
 public:
  explicit DecodeClock(int milliseconds)
      : milliseconds_(milliseconds), end_(spent() + std::chrono::milliseconds(milliseconds)) {}
  bool expired() const { return spent() >= end_; }
  Error error() const;

 private:
  static std::chrono::nanoseconds spent() {
    timespec time = {};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }

  int milliseconds_;
  std::chrono::nanoseconds end_;
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
