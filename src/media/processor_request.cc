// The keys are those that vLLM takes for these models.
#include "media/processor_request.h"

#include <algorithm>

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

}  // namespace

Result<ImageProcessor> with_request_settings(const ImageProcessor& processor, const Json& kwargs) {
  TRY(check_keys(kwargs, "keys", {"min_pixels", "max_pixels", "size"},
                 "min_pixels, max_pixels or size"));
  std::optional<int64_t> min_pixels, max_pixels;
  if (const Json* size = kwargs.find("size"); size && !size->is_null()) {
    TRY(check_keys(*size, "size", {"shortest_edge", "longest_edge"},
                   "shortest_edge and longest_edge"));
    min_pixels = TRY(request_pixels(*size, "shortest_edge"));
    max_pixels = TRY(request_pixels(*size, "longest_edge"));
  }
  if (const auto given = TRY(request_pixels(kwargs, "min_pixels"))) min_pixels = given;
  if (const auto given = TRY(request_pixels(kwargs, "max_pixels"))) max_pixels = given;
  auto changed = with_pixels(processor, min_pixels, max_pixels);
  if (!changed.ok())
    return Error{changed.error().code, concat(kPrefix, changed.error().message, "; ", kAdvice)};
  return changed;
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
