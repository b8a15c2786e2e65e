// The keys are those that vLLM takes for these models.
#include "media/processor_request.h"

#include <algorithm>
#include <utility>

namespace nibble {
namespace {

constexpr std::string_view kPrefix = "mm_processor_kwargs: ";
constexpr std::string_view kAdvice = "leave it out for the server's own";

Error wrong_setting(std::string_view key, std::string_view expected, std::string_view found) {
  return make_error(ErrorCode::invalid_argument, {concat(kPrefix, key), expected, found, kAdvice});
}

Error wrong_bound(std::string_view key, std::string_view expected, int64_t found) {
  return make_error(ErrorCode::invalid_argument,
                    {.what = key, .expected = expected, .found = concat(found)});
}

Result<std::optional<int64_t>> request_pixels(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  if (!value || value->is_null()) return std::optional<int64_t>();
  if (!value->is_int())
    return wrong_setting(key, "a whole number",
                         value->is_number() ? value->dump() : value->type_name());
  return std::optional<int64_t>(value->as_int());
}

Result<void> check_keys(const Json& object, std::string_view prefix,
                        std::initializer_list<std::string_view> known, std::string_view names) {
  if (!object.is_object()) return wrong_setting(prefix, "an object", object.type_name());
  for (const Json::Member& member : object.as_object())
    if (std::find(known.begin(), known.end(), member.key) == known.end())
      return wrong_setting(prefix, names, member.key.substr(0, 40));
  return {};
}

constexpr std::string_view kOfImages = "images_kwargs";
constexpr std::string_view kOfVideos = "videos_kwargs";

/// Both kinds share one object, so what is for the other kind is known, and passed over.
Result<void> check_settings(const Json& object, std::string_view name, bool nested) {
  if (nested)
    return check_keys(object, name,
                      {"min_pixels", "max_pixels", "size", "fps", "num_frames", "do_sample_frames"},
                      "min_pixels, max_pixels, size, fps, num_frames or do_sample_frames");
  return check_keys(object, name,
                    {"min_pixels", "max_pixels", "size", "fps", "num_frames", "do_sample_frames",
                     kOfImages, kOfVideos},
                    "min_pixels, max_pixels, size, fps, num_frames, do_sample_frames, "
                    "images_kwargs or videos_kwargs");
}

/// The settings of one kind: its own members go before those beside them.
Result<Json> settings_of(const Json& kwargs, std::string_view kind) {
  TRY(check_settings(kwargs, "keys", false));
  Json settings = kwargs;
  for (const std::string_view each : {kOfImages, kOfVideos}) {
    const Json* own = kwargs.find(each);
    if (own == nullptr || own->is_null()) continue;
    TRY(check_settings(*own, each, true));
    if (each != kind) continue;
    for (const Json::Member& member : own->as_object()) settings.set(member.key, member.value);
  }
  return settings;
}

/// The bounds on the area: least, largest.
Result<std::pair<std::optional<int64_t>, std::optional<int64_t>>> area_bounds(
    const Json& settings) {
  std::optional<int64_t> min_pixels, max_pixels;
  if (const Json* size = settings.find("size"); size && !size->is_null()) {
    TRY(check_keys(*size, "size", {"shortest_edge", "longest_edge"},
                   "shortest_edge and longest_edge"));
    min_pixels = TRY(request_pixels(*size, "shortest_edge"));
    max_pixels = TRY(request_pixels(*size, "longest_edge"));
  }
  if (const auto given = TRY(request_pixels(settings, "min_pixels"))) min_pixels = given;
  if (const auto given = TRY(request_pixels(settings, "max_pixels"))) max_pixels = given;
  return std::pair(min_pixels, max_pixels);
}

Result<ImageProcessor> with_areas(const ImageProcessor& processor, const Json& settings) {
  const auto [min_pixels, max_pixels] = TRY(area_bounds(settings));
  auto changed = with_pixels(processor, min_pixels, max_pixels);
  if (!changed.ok())
    return Error{changed.error().code, concat(kPrefix, changed.error().message, "; ", kAdvice)};
  return changed;
}

std::string found_value(const Json& value) {
  return value.is_number() ? value.dump() : std::string(value.type_name());
}

}  // namespace

Result<ImageProcessor> with_request_settings(const ImageProcessor& processor, const Json& kwargs) {
  return with_areas(processor, TRY(settings_of(kwargs, kOfImages)));
}

Result<VideoProcessor> with_request_settings(const VideoProcessor& processor, const Json& kwargs) {
  const Json settings = TRY(settings_of(kwargs, kOfVideos));
  const auto given = [&settings](std::string_view key) -> const Json* {
    const Json* value = settings.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  };
  VideoProcessor changed = processor;
  if (given("min_pixels") || given("max_pixels") || given("size"))
    changed.frame = TRY(with_areas(processor.frame, settings));
  const Json* fps = given("fps");
  const Json* frames = given("num_frames");
  if (fps && frames) return wrong_setting("fps and num_frames", "one of the two", "both");
  if (fps) {
    const auto rate = frame_rate(*fps);
    if (!rate)
      return wrong_setting("fps", concat("a number from ", kFrameRateMin, " to ", kFrameRateMax),
                           found_value(*fps));
    changed.fps = *rate;
    changed.num_frames.reset();
  }
  if (frames) {
    if (!frames->is_int() || frames->as_int() < 1 || frames->as_int() > processor.max_frames)
      return wrong_setting("num_frames", concat("a whole number from 1 to ", processor.max_frames),
                           found_value(*frames));
    changed.num_frames = static_cast<int>(frames->as_int());
  }
  if (const Json* sample = given("do_sample_frames"); sample && *sample != Json(true))
    return wrong_setting("do_sample_frames", "true", found_value(*sample));
  return changed;
}

std::optional<double> frame_rate(const Json& value) {
  if (!value.is_number() || !(value.as_double() >= kFrameRateMin) ||
      value.as_double() > kFrameRateMax)
    return std::nullopt;
  return value.as_double();
}

Result<ImageProcessor> with_pixels(const ImageProcessor& processor,
                                   std::optional<int64_t> min_pixels,
                                   std::optional<int64_t> max_pixels) {
  ImageProcessor changed = processor;
  changed.max_pixels = max_pixels.value_or(processor.max_pixels);
  // A largest area below the checkpoint's smallest asks for a smaller image, so it lowers both.
  changed.min_pixels = min_pixels.value_or(std::min(processor.min_pixels, changed.max_pixels));
  changed.keep_max = true;
  const int64_t least = int64_t{processor.factor()} * processor.factor();
  if (changed.max_pixels < least)
    return wrong_bound("max_pixels", concat("at least ", least, ", one token"), changed.max_pixels);
  if (changed.max_pixels > processor.max_pixels)
    return wrong_bound("max_pixels", concat("at most ", processor.max_pixels), changed.max_pixels);
  if (changed.min_pixels < 1 || changed.min_pixels > changed.max_pixels)
    return wrong_bound("min_pixels", concat("from 1 to max_pixels, ", changed.max_pixels),
                       changed.min_pixels);
  return changed;
}

}  // namespace nibble
