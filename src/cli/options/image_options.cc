// vLLM's forms of limits, and a processor's bounds.
#include "cli/options/image_options.h"

#include <algorithm>
#include <thread>

#include "base/json.h"
#include "cli/options/flag_errors.h"
#include "cli/options/split_list.h"
#include "cli/options/video_options.h"
#include "media/processor_request.h"

namespace nibble {

namespace {

constexpr std::string_view kLimitFlag = kMediaLimitOption.name;
constexpr std::string_view kPixelsFlag = "mm-processor-kwargs";
constexpr int64_t kMediaMax = 1024;
constexpr size_t kVideosDefault = 4;  // of --limit-mm-per-prompt
constexpr int64_t kPixelsMax = int64_t{1} << 30;
constexpr int64_t kFramesMax = 4096;

/// "image=2,video=0" as {"image": 2, "video": 0}; other text as it is.
std::string media_json(const std::string& text) {
  if (text.find('{') != std::string::npos || text.find('=') == std::string::npos) return text;
  std::string json;
  for (const std::string& word : split_list(text)) {
    const size_t equals = std::min(word.find('='), word.size() - 1);
    json += concat(json.empty() ? "{" : ",", Json(word.substr(0, equals)).dump(), ":",
                   word.substr(equals + 1));
  }
  return json + "}";
}

/// The count of 4 or of {"count": 4, "width": 1024}; nothing: it is no such limit.
std::optional<int64_t> count_of(const Json& limit, int64_t otherwise) {
  const auto whole = [](const Json& value) { return value.is_int() && value.as_int() >= 0; };
  if (whole(limit)) return limit.as_int();
  if (!limit.is_object()) return std::nullopt;
  for (const Json::Member& member : limit.as_object())
    if (!whole(member.value)) return std::nullopt;
  const Json* count = limit.find("count");
  return count != nullptr ? count->as_int() : otherwise;
}

/// {"image": 4, "video": {"count": 1, "num_frames": 32}} or image=4,video=1 into the flags.
Result<void> read_limits(const std::string& text, ImageIntakeOptions& intake) {
  const auto refuse = [&] {
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat("--", kLimitFlag),
                       .expected = concat("limits such as {\"image\": 4, \"video\": 0} or ",
                                          "image=4,video=0, of image and video (at most ",
                                          kMediaMax, " each) and audio"),
                       .found = concat("\"", text, "\"")});
  };
  const auto parsed = parse_json(media_json(text), "limits");
  if (!parsed.ok() || !parsed.value().is_object()) return refuse();
  size_t audio = 0;
  for (const Json::Member& member : parsed.value().as_object()) {
    size_t* limit = member.key == "image"   ? &intake.images_max
                    : member.key == "video" ? &intake.videos.videos_max
                    : member.key == "audio" ? &audio
                                            : nullptr;
    if (limit == nullptr) return refuse();
    const auto count = count_of(member.value, static_cast<int64_t>(*limit));
    if (!count || *count > kMediaMax) return refuse();
    *limit = static_cast<size_t>(*count);
  }
  return {};
}

/// The members of --mm-processor-kwargs into the flags.
Result<void> read_processor_settings(const std::string& text, ImageFlags& flags) {
  const auto refuse = [&](const std::string& found) {
    return make_error(
        ErrorCode::invalid_argument,
        {.what = concat("--", kPixelsFlag),
         .expected = concat("an object of min_pixels and max_pixels, whole numbers from 1 to ",
                            kPixelsMax, ", and of fps, from ", kFrameRateMin, " to ", kFrameRateMax,
                            ", or num_frames, from 1 to ", kFramesMax),
         .found = found});
  };
  const auto parsed = parse_json(text, "pixels");
  if (!parsed.ok() || !parsed.value().is_object()) return refuse(concat("\"", text, "\""));
  const auto whole = [](const Json& value, int64_t most) {
    return value.is_int() && value.as_int() >= 1 && value.as_int() <= most;
  };
  for (const auto& [key, value] : parsed.value().as_object()) {
    if (const auto rate = frame_rate(value); key == "fps" && rate)
      flags.fps = rate;
    else if (key == "num_frames" && whole(value, kFramesMax))
      flags.num_frames = static_cast<int>(value.as_int());
    else if (key == "min_pixels" && whole(value, kPixelsMax))
      flags.pixels_min = value.as_int();
    else if (key == "max_pixels" && whole(value, kPixelsMax))
      flags.pixels_max = value.as_int();
    else
      return refuse(concat(shown(Json(key)), ": ", shown(value)));
  }
  return flags.fps && flags.num_frames ? refuse("both fps and num_frames") : Result<void>();
}

/// --allowed-media-domains and what goes with it; empty: nothing is fetched.
Result<std::shared_ptr<const ImageFetcher>> read_fetcher(const Arguments& arguments) {
  constexpr std::string_view kHosts = "allowed-media-domains";
  const auto plain =
      arguments.enabled("allow-media-http") ? ImageHosts::Plain::taken : ImageHosts::Plain::refused;
  const auto seconds = TRY(arguments.integer("media-fetch-timeout", 1, 600));
  const std::vector<std::string> names = split_list(arguments.text(kHosts).value_or(""));
  if (names.empty()) return std::shared_ptr<const ImageFetcher>();
  auto hosts = ImageHosts::parse(names, plain);
  if (!hosts.ok())
    return Error{hosts.error().code, concat("--", kHosts, ": ", hosts.error().message)};
  ImageFetcherOptions options{.hosts = std::move(hosts).value()};
  options.time_max = std::chrono::seconds(seconds);
  return std::make_shared<const ImageFetcher>(std::move(options));
}

constexpr int64_t kThreadsMax = 256;

/// Threads that decode, of which each holds an image: all together may need as much memory as the
/// images that are decoded have. One there must be. `asked`: 0 for the default.
Result<int> threads_within(const ImageIntakeOptions& intake, int64_t asked) {
  const int64_t each = decode_memory_max(intake.limits);
  const int64_t fit =
      std::clamp(static_cast<int64_t>(intake.memory_bytes_max) / each, int64_t{1}, kThreadsMax);
  if (asked > fit)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "--image-threads",
         .expected = concat("at most ", fit, ", as each may need ", each,
                            " bytes to decode and all together have those of --max-image-memory"),
         .found = concat(asked),
         .advice = "lower it or --max-image-pixels, or raise --max-image-memory"});
  if (asked > 0) return static_cast<int>(asked);
  constexpr int64_t kMost = 4;
  const int64_t quarter = std::thread::hardware_concurrency() / 4;
  return static_cast<int>(std::clamp(quarter, int64_t{1}, std::min(kMost, fit)));
}

/// The processor of the folder, with the bounds of the flags, which may raise what the checkpoint
/// says, and of the tower's memory.
Result<ImageProcessor> bounded(ImageProcessor processor, const ImageFlags& flags,
                               int64_t tokens_max) {
  const int64_t fits = tokens_max * processor.factor() * processor.factor();
  if (flags.pixels_max.value_or(0) > fits)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = concat("max_pixels of --", kPixelsFlag),
         .expected = concat("at most ", fits, ", the largest image that there is ", "memory for"),
         .found = concat(*flags.pixels_max)});
  processor.max_pixels = flags.pixels_max.value_or(std::min(processor.max_pixels, fits));
  processor.min_pixels =
      std::min(flags.pixels_min.value_or(processor.min_pixels), processor.max_pixels);
  auto checked = with_pixels(processor, processor.min_pixels, processor.max_pixels);
  if (!checked.ok())
    return Error{checked.error().code, concat("--", kPixelsFlag, ": ", checked.error().message)};
  return checked;
}

std::string images_notice(const ImageIntakeOptions& options, int64_t checkpoints_max) {
  const ImageProcessor& used = options.processor;
  std::string own;
  if (used.max_pixels < checkpoints_max)
    own = concat("; the checkpoint's own bound is ", tokens_of(checkpoints_max, used));
  return concat("images: at most ", options.images_max, " a request, each resized to at most ",
                used.max_pixels, " pixels (", tokens_of(used.max_pixels, used), " tokens", own,
                ")\n");
}

}  // namespace

Result<bool> takes_media(const Arguments& arguments) {
  ImageIntakeOptions intake;
  intake.videos.videos_max = kVideosDefault;
  TRY(read_limits(arguments.text(kLimitFlag).value_or("{}"), intake));
  return intake.images_max + intake.videos.videos_max > 0;
}

Result<ImageFlags> read_image_flags(const Arguments& arguments) {
  FlagErrors errors;
  ImageFlags flags;
  flags.intake.fetcher = errors.take(read_fetcher(arguments));
  flags.intake.videos.videos_max = kVideosDefault;
  errors.add(read_limits(arguments.text(kLimitFlag).value_or("{}"), flags.intake));
  if (const auto text = arguments.text(kPixelsFlag))
    errors.add(read_processor_settings(*text, flags));
  ImageLimits& limits = flags.intake.limits;
  limits.encoded_bytes_max =
      static_cast<size_t>(errors.take(arguments.integer("max-image-bytes", 1, int64_t{1} << 32)));
  limits.pixels_max = errors.take(arguments.integer("max-image-pixels", 1, kPixelsMax));
  limits.aspect_max = static_cast<int>(errors.take(arguments.integer("max-image-aspect", 1, 200)));
  constexpr int64_t kMilli = 1000;
  limits.decode_ms_max =
      static_cast<int>(kMilli * errors.take(arguments.integer("image-timeout", 1, 3600)));
  VideoLimits& videos = flags.intake.videos.limits;
  videos.encoded_bytes_max =
      static_cast<size_t>(errors.take(arguments.integer("max-video-bytes", 1, int64_t{1} << 32)));
  videos.frames_max =
      static_cast<int>(errors.take(arguments.integer("max-video-frames", 1, kFramesMax)));
  videos.cpu_seconds_max =
      static_cast<int>(errors.take(arguments.integer("video-timeout", 1, 3600)));
  videos.decode_ms_max = static_cast<int>(kMilli * videos.cpu_seconds_max);
  flags.intake.memory_bytes_max =
      static_cast<size_t>(errors.take(arguments.integer("max-image-memory", 1, int64_t{1} << 40)));
  const int64_t threads = errors.take(arguments.integer("image-threads", 0, kThreadsMax));
  TRY(errors.result());
  flags.threads = TRY(threads_within(flags.intake, threads));
  return flags;
}

Result<std::shared_ptr<const ImageIntake>> make_image_intake(const ImageFlags& flags,
                                                             const ModelConfig& config,
                                                             int64_t tokens_max,
                                                             const std::filesystem::path& folder,
                                                             std::string& notice) {
  std::shared_ptr<const ImageIntake> none;
  const MediaMost most = flags.intake.most();
  if (!config.vision || (most.images == 0 && most.videos == 0)) return none;
  const auto processor = TRY(load_image_processor(folder.string()));
  if (!processor) {
    notice +=
        "the checkpoint has no preprocessor_config.json: requests with images or videos are "
        "refused\n";
    return none;
  }
  TRY(check_processor(*processor, *config.vision, "preprocessor_config.json"));
  ImageIntakeOptions options = flags.intake;
  options.processor = TRY(bounded(*processor, flags, tokens_max));
  options.tokens_max = tokens_max;
  options.image_token = config.vision->image_token;
  options.video_token = config.vision->video_token;
  if (most.images > 0) notice += images_notice(options, processor->max_pixels);
  TRY(take_videos(flags, *config.vision, folder, options, notice));
  return std::make_shared<const ImageIntake>(std::move(options));
}

}  // namespace nibble
