// Flags about the images and videos of requests, under vLLM's names where it has them, and the
// ImageIntake that they and a checkpoint's files describe.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/verb.h"
#include "model/config/config.h"
#include "server/images/image_intake.h"

namespace nibble {

inline constexpr Option kMediaLimitOption = {
    "limit-mm-per-prompt", "JSON|K=V", "image=8,video=4",
    "images and videos of a request; image=0 or video=0: none are taken, and without both no "
    "memory is"};

inline constexpr auto kImageOptions = std::to_array<Option>({
    kMediaLimitOption,
    {"mm-processor-kwargs", "JSON", "",
     "min_pixels and max_pixels of images, e.g. {\"max_pixels\":262144}: larger ones are resized "
     "to that, and no request gets more; default: the checkpoint's, of --max-image-tokens at most. "
     "fps or num_frames: frames that are taken of a video where a request does not say it"},
    {"max-image-bytes", "N", "20M", "bytes of an image as it is sent, out of its base64"},
    {"max-image-pixels", "N", "33000000", "pixels of an image as it is sent"},
    {"max-image-aspect", "N", "200", "longer edge of an image over its shorter one"},
    {"image-timeout", "SECONDS", "10", "longest processor time to decode an image"},
    {"max-image-memory", "N", "2G",
     "bytes of the decoded images and videos of all requests, which hold them until they end; more "
     "get status "
     "429"},
    {"max-video-bytes", "N", "32M", "bytes of a video as it is sent, out of its base64"},
    {"max-video-frames", "N", "768", "frames that are taken of a video; at most the checkpoint's"},
    {"video-timeout", "SECONDS", "60",
     "longest time, and longest processor time, of each run of ffmpeg on a video"},
    {"allowed-media-domains", "LIST", "",
     "hosts that images and videos are fetched from where a request has their address: "
     "example.org, "
     "*.example.org (subdomains), example.org:8443, with commas; default: nothing is fetched"},
    {"allow-media-http", "", "false", "such addresses may be http, not https alone"},
    {"media-fetch-timeout", "SECONDS", "10",
     "longest time to fetch the images and videos of a request"},
    {"image-threads", "N", "0",
     "threads that decode images and videos, no more than could hold images of --max-image-pixels "
     "in as much "
     "as --max-image-memory, which is beside it; 0: a quarter of the cores, up to 4"},
});

struct ImageFlags {
  ImageIntakeOptions intake;  // limits alone
  std::optional<int64_t> pixels_min, pixels_max;
  std::optional<double> fps;
  std::optional<int> num_frames;
  int threads = 1;
};

/// True if kMediaLimitOption leaves a request an image or a video. Errors: invalid_argument.
Result<bool> takes_media(const Arguments& arguments);

/// Reads the rows above. Errors: one line per flag with a value it cannot have.
Result<ImageFlags> read_image_flags(const Arguments& arguments);

/// The images and videos that a model takes, by the flags and the files of its folder; nothing
/// where it takes none: its tower is not loaded, both limits are 0, or the folder does not say how
/// images are prepared. Looks for ffmpeg where videos may come. `tokens_max`: of an image, for
/// which the tower has memory. `notice` gets lines for people where a tower is loaded. Errors: a
/// processor that is not the tower's, bounds on pixels that it cannot have, those of
/// load_image_processor and load_video_processor.
Result<std::shared_ptr<const ImageIntake>> make_image_intake(const ImageFlags& flags,
                                                             const ModelConfig& config,
                                                             int64_t tokens_max,
                                                             const std::filesystem::path& folder,
                                                             std::string& notice);

}  // namespace nibble
