// transformers' arithmetic, in doubles and in its order
// (models/qwen3_vl/video_processing_qwen3_vl.py, processing_qwen3_vl.py; numpy's linspace).
#include "media/video_processor.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "media/processor_section.h"

namespace nibble {
namespace {

constexpr int kFramesMax = 1 << 16;

Error no_frames(int64_t found) {
  return make_error(ErrorCode::invalid_argument, {"video", "at least one frame", concat(found),
                                                  "check the file, or send images instead"});
}

int64_t padded(int64_t frames, int temporal) {
  return (frames + temporal - 1) / temporal * temporal;
}

}  // namespace

Result<VideoProcessor> parse_video_processor(const Json& config, std::string_view source) {
  if (!config.is_object())
    return make_error(ErrorCode::corrupt, {source, "an object", config.type_name(),
                                           "correct the file or fetch it again"});
  const ProcessorSection section(config, std::string(source));
  TRY(section.check_class("video_processor_type", {"Qwen3VLVideoProcessor"}));
  VideoProcessor processor;
  processor.frame.patch = 16;
  processor.frame.min_pixels = 128 * 32 * 32;
  processor.frame.max_pixels = 32 * 32 * 768;
  processor.frame.mean.fill(0.5);
  processor.frame.deviation.fill(0.5);
  TRY(section.read_common(processor.frame));
  TRY(section.check_areas(processor.frame));
  TRY(section.read_positive("fps", 1000, processor.fps));
  TRY(section.read_integer("min_frames", 1, kFramesMax, processor.min_frames));
  TRY(section.read_integer("max_frames", 1, kFramesMax, processor.max_frames));
  TRY(section.read_integer("max_video_tokens", 1, 1 << 20, processor.max_frame_tokens));
  processor.cap_pixels_per_frame = TRY(section.flag("cap_pixels_per_frame")).value_or(false);
  return processor;
}

Result<std::optional<VideoProcessor>> load_video_processor(const std::string& folder) {
  const auto config =
      TRY(find_processor_config(folder, "video_processor", "video_preprocessor_config.json"));
  if (!config) return std::optional<VideoProcessor>();
  return std::optional(TRY(parse_video_processor(config->json, config->source)));
}

Result<std::vector<int64_t>> sampled_frames(int64_t frames, double source_fps,
                                            const VideoProcessor& processor) {
  if (frames < 1) return no_frames(frames);
  if (!(source_fps > 0) || source_fps > 1000)
    return make_error(ErrorCode::invalid_argument,
                      {"video", "a rate above 0 and at most 1000 frames a second",
                       concat(source_fps), "check the file"});
  const double wanted =
      std::trunc(static_cast<double>(frames) / source_fps * processor.fps);  // may be huge
  const double bounded =
      processor.num_frames
          ? *processor.num_frames
          : std::min<double>(std::max<double>(wanted, processor.min_frames), processor.max_frames);
  const int64_t count = std::min<int64_t>(static_cast<int64_t>(bounded), frames);
  std::vector<int64_t> taken(count);
  const auto last = static_cast<double>(frames - 1);
  const double step = count > 1 ? last / static_cast<double>(count - 1) : 0;
  for (int64_t i = 0; i < count; ++i)
    taken[i] = static_cast<int64_t>(std::nearbyint(static_cast<double>(i) * step));
  if (count > 1) taken.back() = frames - 1;
  return taken;
}

std::vector<double> frame_times(std::span<const int64_t> frames, double source_fps, int temporal) {
  std::vector<double> times;
  const int64_t count = std::ssize(frames);
  const auto time = [&](int64_t i) {
    return static_cast<double>(frames[std::min(i, count - 1)]) / source_fps;
  };
  for (int64_t i = 0; i < count; i += temporal)
    times.push_back((time(i) + time(i + temporal - 1)) / 2);
  return times;
}

Result<ImageSize> resized_video(const ImageSize& size, int64_t frames,
                                const VideoProcessor& processor) {
  if (frames < 1) return no_frames(frames);
  const int temporal = processor.frame.temporal, factor = processor.frame.factor();
  // transformers refuses fewer frames than a patch has; here the last one stands for the others.
  frames = std::max<int64_t>(frames, temporal);
  ImageProcessor bounds = processor.frame;
  if (processor.cap_pixels_per_frame) {
    const int64_t tokens_area = int64_t{processor.max_frame_tokens} * factor * factor;
    const auto least = static_cast<int64_t>(static_cast<double>(bounds.min_pixels) * 1.05);
    bounds.max_pixels = std::max(std::min(tokens_area, bounds.max_pixels / frames), least) * frames;
  }
  ImageSize from = size;
  if (size.width > 0 && size.height > 0 && (size.height < factor || size.width < factor)) {
    const double scale = std::max(static_cast<double>(factor) / size.height,
                                  static_cast<double>(factor) / size.width);
    const double width = size.width * scale, height = size.height * scale;
    if (width > 1e6 || height > 1e6)  // far beyond the aspect ratio that is refused
      return resized_frame(size, frames, frames, bounds);
    from = {.width = static_cast<int>(width), .height = static_cast<int>(height)};
  }
  const double pairs = static_cast<double>(frames) / temporal;
  const auto even_frames = static_cast<int64_t>(std::nearbyint(pairs)) * temporal;
  const int64_t counted = std::min(frames, even_frames);  // the bound holds for either
  if (processor.frame_pixels_max < bounds.max_pixels / counted) {
    bounds.max_pixels = processor.frame_pixels_max * counted;
    bounds.min_pixels = std::min(bounds.min_pixels, bounds.max_pixels);
    bounds.keep_max = true;
  }
  return resized_frame(from, frames, even_frames, bounds);
}

Result<ImageGrid> video_grid(const ImageSize& size, int64_t frames,
                             const VideoProcessor& processor) {
  const ImageSize resized = TRY(resized_video(size, frames, processor));
  return ImageGrid{
      .t = static_cast<int>(padded(frames, processor.frame.temporal) / processor.frame.temporal),
      .h = resized.height / processor.frame.patch,
      .w = resized.width / processor.frame.patch};
}

namespace {

Result<VideoOutline> outline_of(std::vector<int64_t> frames, const ImageSize& size,
                                double source_fps, const VideoProcessor& processor) {
  VideoOutline outline{.frames = std::move(frames)};
  outline.grid = TRY(video_grid(size, std::ssize(outline.frames), processor));
  outline.times = frame_times(outline.frames, source_fps, processor.frame.temporal);
  outline.patch_bytes = outline.grid.patches() * processor.frame.patch_values();
  outline.step_tokens = processor.frame.tokens(outline.grid) / outline.grid.t;
  return outline;
}

}  // namespace

Result<VideoOutline> outline_video(const ImageSize& size, int64_t frames, double source_fps,
                                   const VideoProcessor& processor) {
  return outline_of(TRY(sampled_frames(frames, source_fps, processor)), size, source_fps,
                    processor);
}

Result<VideoOutline> outline_frames(const ImageSize& size, int64_t frames,
                                    const VideoProcessor& processor) {
  if (frames > processor.max_frames)
    return make_error(ErrorCode::invalid_argument,
                      {"video", concat("at most ", processor.max_frames, " frames"), concat(frames),
                       "send fewer"});
  std::vector<int64_t> all(static_cast<size_t>(std::max<int64_t>(frames, 0)));
  std::iota(all.begin(), all.end(), 0);
  return outline_of(std::move(all), size, processor.fps, processor);
}

}  // namespace nibble
