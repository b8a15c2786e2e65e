// A processor from a file, with the bounds of the flags, and the programs that decode.
#include "cli/options/video_options.h"

#include <algorithm>
#include <cstdlib>

namespace nibble {

namespace {

/// The processor of the folder, with the settings of the flags, and no frame beyond the tower's
/// memory.
Result<void> use_video_processor(VideoProcessor processor, const ImageFlags& flags,
                                 const VisionConfig& vision, ImageIntakeOptions& options) {
  TRY(check_processor(processor.frame, vision, "video_preprocessor_config.json"));
  const int64_t area = int64_t{processor.frame.factor()} * processor.frame.factor();
  processor.frame_pixels_max = options.tokens_max * area;
  processor.max_frames = std::min(processor.max_frames, flags.intake.videos.limits.frames_max);
  processor.min_frames = std::min(processor.min_frames, processor.max_frames);
  processor.fps = flags.fps.value_or(processor.fps);
  if (flags.num_frames) processor.num_frames = std::min(*flags.num_frames, processor.max_frames);
  options.videos.processor = processor;
  return {};
}

}  // namespace

Result<void> check_processor(const ImageProcessor& processor, const VisionConfig& vision,
                             std::string_view file) {
  if (processor.patch == vision.patch && processor.merge == vision.merge &&
      processor.temporal == vision.temporal_patch)
    return {};
  const auto shape = [](int patch, int merge, int temporal) {
    return concat("patches of ", patch, " pixels, ", merge, " x ", merge, " merged, ", temporal,
                  " frames");
  };
  return make_error(ErrorCode::corrupt,
                    {.what = file,
                     .expected = shape(vision.patch, vision.merge, vision.temporal_patch),
                     .found = shape(processor.patch, processor.merge, processor.temporal),
                     .advice = "--no-vision serves text alone"});
}

Result<void> take_videos(const ImageFlags& flags, const VisionConfig& vision,
                         const std::filesystem::path& folder, ImageIntakeOptions& options,
                         std::string& notice) {
  if (options.videos.videos_max == 0) return {};
  const auto processor = TRY(load_video_processor(folder.string()));
  if (!processor) {
    options.videos.videos_max = 0;
    notice +=
        "the checkpoint has no video_preprocessor_config.json: requests with videos are refused\n";
    return {};
  }
  TRY(use_video_processor(*processor, flags, vision, options));
  const char* path = std::getenv("PATH");
  auto programs = VideoPrograms::find(path != nullptr ? path : "", options.videos.limits);
  const VideoProcessor& used = options.videos.processor;
  notice += concat("videos: at most ", options.videos.videos_max, " a request, each at most ",
                   used.max_frames, " frames and ",
                   tokens_of(used.frame.max_pixels / used.frame.temporal, used.frame), " tokens; ",
                   programs.ok() ? programs.value().description()
                                 : concat("as lists of frames alone: ", programs.error().message),
                   "\n");
  if (programs.ok())
    options.videos.decoder =
        std::make_shared<const VideoDecoder>(std::move(programs).value(), options.videos.limits);
  else
    options.videos.decoder = programs.error();
  return {};
}

}  // namespace nibble
