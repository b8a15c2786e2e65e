// ImageIntake: from images as clients sent them to what stands for them in a prompt. It holds the
// limits of the server and the memory that the pixels of all requests share, those of videos too
// (videos()). Any thread; to prepare takes long, so not where others wait.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/sequence.h"
#include "media/image_decoder.h"
#include "media/image_processor.h"
#include "server/http/byte_budget.h"
#include "server/images/image_fetcher.h"
#include "server/images/sent_images.h"
#include "server/images/video_intake.h"

namespace nibble {

struct ImageIntakeOptions {
  ImageProcessor processor;                     // its max_pixels is the most that anybody gets
  ImageLimits limits;                           // limits of one image, encoded and decoded
  size_t images_max = 8;                        // images of a request; 0: none are taken
  int64_t tokens_max = INT64_MAX;               // tokens of one image that the tower has memory for
  size_t memory_bytes_max = size_t{2} << 30;    // pixels of all requests, until they end
  std::shared_ptr<const ImageFetcher> fetcher;  // empty: addresses are refused
  int32_t image_token = 0;
  int32_t video_token = 0;
  VideoIntakeOptions videos = {};

  MediaMost most() const {
    return {.images = images_max,
            .videos = videos.videos_max,
            .frames = static_cast<size_t>(videos.processor.max_frames)};
  }
};

/// The area to which OpenAI's `detail: low` limits an image: its 512 x 512.
inline constexpr int64_t kLowDetailPixels = 512 * 512;

/// An image whose headers have been read.
struct MeasuredImage {
  std::vector<std::byte> bytes;  // encoded
  ImageProcessor processor;      // with what this image is to get
  ImageGrid grid;
  int64_t rows() const { return processor.tokens(grid); }
  int64_t patch_bytes() const { return grid.patches() * processor.patch_values(); }
};

class ImageIntake {
 public:
  explicit ImageIntake(ImageIntakeOptions options);

  const ImageIntakeOptions& options() const { return options_; }
  const VideoIntake& videos() const { return videos_; }

  /// Reads where the images are, fetches those that are elsewhere, and reads what their headers
  /// say, within the limits. `settings`: the request's mm_processor_kwargs, or null. Errors: 400
  /// that names the image; 503 where the machine has no memory left for it.
  std::variant<std::vector<MeasuredImage>, ApiError> measure(std::span<const SentImage> images,
                                                             const Json& settings) const;

  /// Decodes and cuts into patches. Errors: 400 that names the image; 400 where they could never be
  /// held at once, 429 where others hold the memory, 503 as above.
  std::variant<std::vector<PreparedImage>, ApiError> prepare(
      std::span<const MeasuredImage> images) const;

  // Since the start.
  struct Counts {
    int64_t images = 0;     // prepared
    int64_t videos = 0;     // likewise
    size_t held_bytes = 0;  // bytes that are held now
  };
  Counts counts() const;

 private:
  Result<MeasuredImage> measure_one(const SentImage& image, const ImageProcessor& asked,
                                    ImageFetcher::Clock::time_point deadline) const;
  Result<PreparedImage> prepare_one(const MeasuredImage& image) const;

  ImageIntakeOptions options_;
  std::shared_ptr<ByteBudget> memory_;
  VideoIntake videos_;
  mutable std::atomic<int64_t> images_ = 0;
};

}  // namespace nibble
