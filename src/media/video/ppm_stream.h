// Frames as ffmpeg writes them through a pipe: PPM images (P6, 8 bits a channel) one behind
// another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/result.h"
#include "media/image_decoder.h"

namespace nibble {

/// Cuts a stream of bytes into frames and holds one of them at a time.
class PpmStream {
 public:
  using OnFrame = std::function<Result<void>(const RgbImage&)>;

  /// Refuses frames of more pixels, before anything of their size is allocated.
  PpmStream(int64_t pixels_max, OnFrame on_frame)
      : pixels_max_(pixels_max), on_frame_(std::move(on_frame)) {}

  /// Takes the next bytes, cut anywhere; calls on_frame for each frame that they complete.
  /// Errors: corrupt for other bytes than these images; invalid_argument for too many pixels;
  /// those of on_frame.
  Result<void> add(std::span<const std::byte> bytes);

  /// corrupt if the stream ended within a frame.
  Result<void> finish() const;

 private:
  Result<void> add_to_header(char next);
  Result<void> begin_frame();

  int64_t pixels_max_;
  OnFrame on_frame_;
  std::string header_;
  int header_lines_ = 0;
  RgbImage frame_;    // its pixels are as many as have come
  size_t bytes_ = 0;  // bytes of the whole frame; 0 while its header is read
};

}  // namespace nibble
