// Cutting, normalising and hashing. There are 256 values a channel: for images transformers'
// rescale (FP64, rounded to F32) and normalize (F32, rounded one by one), for videos both in one.
#include "media/image_patches.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/sha256.h"
#include "media/bicubic_resize.h"

namespace nibble {
namespace {

MediaDigest digest_of(const ImagePatches& patches) {
  const std::array<int32_t, 5> shape = {patches.grid.t, patches.grid.h, patches.grid.w,
                                        patches.patch, patches.temporal};
  Sha256 hash;
  hash.add("nibble patches 1");
  hash.add(std::as_bytes(std::span(shape)));
  hash.add(std::as_bytes(std::span(patches.values)));
  hash.add(std::as_bytes(std::span(patches.levels)));
  MediaDigest half;
  std::memcpy(half.data(), hash.bytes().data(), sizeof half);
  return half;
}

float value_of(int byte, size_t channel, const ImageProcessor& processor) {
  auto value = static_cast<float>(byte);
  if (processor.rescale) value = static_cast<float>(byte * processor.rescale_factor);
  if (processor.normalize)
    value = (value - static_cast<float>(processor.mean[channel])) /
            static_cast<float>(processor.deviation[channel]);
  return value;
}

/// transformers' _fuse_mean_std_and_rescale_factor.
float fused_value_of(int byte, size_t channel, const ImageProcessor& processor) {
  const auto value = static_cast<float>(byte);
  const auto factor = static_cast<float>(processor.rescale_factor);
  if (!processor.normalize) return processor.rescale ? value * factor : value;
  const float scale = processor.rescale ? static_cast<float>(1.0 / processor.rescale_factor) : 1.0F;
  const float mean = static_cast<float>(processor.mean[channel]) * scale;
  return (value - mean) / (static_cast<float>(processor.deviation[channel]) * scale);
}

ImagePatches blank_patches(const ImageGrid& grid, const ImageProcessor& processor,
                           float (*value)(int, size_t, const ImageProcessor&)) {
  ImagePatches patches{.grid = grid, .patch = processor.patch, .temporal = processor.temporal};
  for (size_t channel = 0; channel < 3; ++channel)
    for (int byte = 0; byte < 256; ++byte)
      patches.values[channel][byte] = value(byte, channel, processor);
  patches.levels.resize(grid.patches() * processor.patch_values());
  return patches;
}

/// The patch whose upper left corner is pixel (y, x), as frame 0 of [3, temporal, patch, patch].
void cut_patch(const RgbImage& image, int y, int x, const ImagePatches& patches, uint8_t* out) {
  const size_t edge = patches.patch;
  const size_t plane = edge * edge * patches.temporal;
  for (size_t row = 0; row < edge; ++row) {
    const uint8_t* in = image.pixels.data() + ((y + row) * image.width + x) * 3;
    uint8_t* to = out + row * edge;
    for (size_t i = 0; i < edge; ++i) {
      to[i] = in[3 * i];
      to[plane + i] = in[3 * i + 1];
      to[2 * plane + i] = in[3 * i + 2];
    }
  }
}

/// Copies the frame before `frame`, of all three channels.
void repeat_frame(uint8_t* frame, const ImagePatches& patches) {
  const size_t area = size_t{1} * patches.patch * patches.patch;
  for (int channel = 0; channel < 3; ++channel, frame += area * patches.temporal)
    std::memcpy(frame, frame - area, area);
}

/// One temporal patch from its frames; equal pointers are equal frames.
void cut(std::span<const RgbImage* const> frames, int merge, ImagePatches& patches) {
  const int edge = patches.patch;
  const size_t area = size_t{1} * edge * edge, row_levels = 3 * area * patches.temporal;
  const ImageGrid& grid = patches.grid;
  uint8_t* out = patches.levels.data();
  for (int window_y = 0; window_y < grid.h; window_y += merge)
    for (int window_x = 0; window_x < grid.w; window_x += merge)
      for (int i = 0; i < merge * merge; ++i, out += row_levels) {
        const int y = (window_y + i / merge) * edge, x = (window_x + i % merge) * edge;
        for (size_t f = 0; f < frames.size(); ++f) {
          if (f > 0 && frames[f] == frames[f - 1])
            repeat_frame(out + f * area, patches);
          else
            cut_patch(*frames[f], y, x, patches, out + f * area);
        }
      }
}

ImageSize pixels_of(const ImageGrid& grid, const ImageProcessor& processor) {
  return {.width = grid.w * processor.patch, .height = grid.h * processor.patch};
}

Error too_little_memory(std::string_view what) {
  return make_error(ErrorCode::no_memory, {concat("preparing ", what), "enough memory",
                                           "too little", "send a smaller one or fewer at once"});
}

Error frame_error(std::string_view expected, std::string_view found) {
  return make_error(ErrorCode::invalid_argument,
                    {"frames of a video", expected, found, "send frames of one size"});
}

}  // namespace

Result<ImagePatches> prepare_image(const RgbImage& image, const ImageProcessor& processor) try {
  const ImageGrid grid = TRY(grid_of({image.width, image.height}, processor));
  ImagePatches patches = blank_patches(grid, processor, value_of);
  const ImageSize size = pixels_of(grid, processor);
  const bool fits = size.width == image.width && size.height == image.height;
  const RgbImage resized =
      fits ? RgbImage() : resize_bicubic(image, size, ResizeArithmetic::pillow);
  const std::vector<const RgbImage*> frames(processor.temporal, fits ? &image : &resized);
  cut(frames, processor.merge, patches);
  patches.digest = digest_of(patches);
  return patches;
} catch (const std::bad_alloc&) {
  return too_little_memory("an image");
}

VideoCutter::VideoCutter(const ImageSize& size, int64_t frames, const ImageGrid& grid,
                         const ImageProcessor& processor)
    : size_(size),
      frames_(frames),
      grid_{.t = 1, .h = grid.h, .w = grid.w},
      processor_(processor) {}

Result<VideoCutter> VideoCutter::begin(const ImageSize& size, int64_t frames,
                                       const VideoProcessor& processor) try {
  const ImageGrid grid = TRY(video_grid(size, frames, processor));
  return VideoCutter(size, frames, grid, processor.frame);
} catch (const std::bad_alloc&) {
  return too_little_memory("a video");
}

Result<void> VideoCutter::add(const RgbImage& frame) try {
  if (taken_ == frames_) return frame_error(concat(frames_), "more");
  if (frame.width != size_.width || frame.height != size_.height)
    return frame_error(concat("all ", size_.width, " x ", size_.height, " pixels"),
                       concat(frame.width, " x ", frame.height));
  resized_.push_back(
      resize_bicubic(frame, pixels_of(grid_, processor_), ResizeArithmetic::torchvision));
  ++taken_;
  if (std::ssize(resized_) == processor_.temporal || taken_ == frames_) cut_group();
  return {};
} catch (const std::bad_alloc&) {
  return too_little_memory("a video");
}

/// The last frame stands for those that are missing.
void VideoCutter::cut_group() {
  std::vector<const RgbImage*> group;
  for (int f = 0; f < processor_.temporal; ++f)
    group.push_back(&resized_[std::min<size_t>(f, resized_.size() - 1)]);
  ImagePatches& patches = patches_.emplace_back(blank_patches(grid_, processor_, fused_value_of));
  cut(group, processor_.merge, patches);
  patches.digest = digest_of(patches);
  resized_.clear();
}

Result<std::vector<ImagePatches>> VideoCutter::finish() && {
  if (taken_ < frames_) return frame_error(concat(frames_), concat(taken_));
  return std::move(patches_);
}

Result<std::vector<ImagePatches>> prepare_video(std::span<const RgbImage> frames,
                                                const VideoProcessor& processor) {
  const ImageSize size =
      frames.empty() ? ImageSize() : ImageSize{frames[0].width, frames[0].height};
  VideoCutter cutter = TRY(VideoCutter::begin(size, std::ssize(frames), processor));
  for (const RgbImage& frame : frames) TRY(cutter.add(frame));
  return std::move(cutter).finish();
}

}  // namespace nibble
