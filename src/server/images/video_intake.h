// VideoIntake: from videos as clients sent them to what stands for them in a prompt. Files are
// decoded by ffmpeg, lists of frames as images are. Any thread; it takes long, so not where others
// wait.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "media/image_decoder.h"
#include "media/video/video_decoder.h"
#include "model/media_patches.h"
#include "server/http/byte_budget.h"
#include "server/images/image_fetcher.h"
#include "server/images/sent_images.h"

namespace nibble {

struct VideoIntakeOptions {
  size_t videos_max = 0;     // videos of a request; 0: none are taken
  VideoProcessor processor;  // its bounds are the most that anybody gets
  VideoLimits limits;        // limits of one video
  /// Decodes files; or the reason why none are.
  Result<std::shared_ptr<const VideoDecoder>> decoder =
      Error{ErrorCode::unsupported, "no program to decode videos was looked for"};
};

/// An image or a temporal patch of a video as the engine takes it, but for its place in the prompt.
struct PreparedImage {
  std::array<uint64_t, 2> digest = {};
  std::shared_ptr<const MediaPatches> patches;  // holds its share of the memory
};

struct PreparedSteps {
  std::vector<double> times;         // seconds of each temporal patch
  int64_t rows = 0;                  // rows of the model for each of them
  std::vector<PreparedImage> steps;  // the temporal patches
};

/// Images and videos share limits, the memory of their pixels, and the way to those that are
/// elsewhere.
struct MediaShared {
  ImageLimits frames;      // limits of an image
  int64_t tokens_max = 0;  // tokens of an image or frame that the tower has memory for
  std::shared_ptr<ByteBudget> memory;
  std::shared_ptr<const ImageFetcher> fetcher;
};

/// The request that videos belong to.
struct VideoRequest {
  Json settings;               // its mm_processor_kwargs, or null
  int64_t context_max = 0;     // tokens beyond which a video is refused before it is decoded
  int64_t image_bytes = 0;     // bytes that the patches of its images are to have
  std::function<bool()> gone;  // asked now and then: once true the work ends; empty: never
};

class VideoIntake {
 public:
  VideoIntake(VideoIntakeOptions options, MediaShared shared);

  /// Fetches, decodes and cuts into patches. Errors: 400 that names the video, also where it and
  /// the rest of its request could never be held at once; 429 where other requests hold the memory;
  /// 503 where the machine has none left.
  std::variant<std::vector<PreparedSteps>, ApiError> prepare(std::span<const SentVideo> videos,
                                                             const VideoRequest& request) const;

  int64_t prepared() const { return prepared_; }  // since the start

 private:
  struct Job;
  Result<PreparedVideo> decode(const SentVideo& video, Job& job, const VideoJudge& judge) const;
  Result<void> admit(const VideoOutline& outline, const Job& job, ByteBudget::Share& share) const;
  Result<PreparedSteps> prepare_one(const SentVideo& video, Job& job) const;

  VideoIntakeOptions options_;
  MediaShared shared_;
  mutable std::atomic<int64_t> prepared_ = 0;
};

}  // namespace nibble
