// Every key is read with its kind and range; what is not implemented is refused by name.
#include "media/processor_section.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"

namespace nibble {
namespace {

constexpr uint64_t kConfigBytesMax = 1 << 20;
constexpr std::string_view kTextAlone = "--no-vision serves text alone";

}  // namespace

const Json* ProcessorSection::find(std::string_view key) const {
  const Json* value = json_.find(key);
  return value && value->is_null() ? nullptr : value;
}

Error ProcessorSection::wrong(std::string_view key, std::string_view expected) const {
  const Json* value = json_.find(key);
  const bool plain = value->is_number() || value->is_bool();
  return make_error(ErrorCode::corrupt, {concat(source_, ": ", key), expected,
                                         plain ? value->dump() : value->type_name(),
                                         "correct the file or fetch it again"});
}

Result<void> ProcessorSection::read_integer(std::string_view key, int64_t min, int64_t max,
                                            int64_t& out) const {
  const Json* value = find(key);
  if (!value) return {};
  if (!value->is_int() || value->as_int() < min || value->as_int() > max)
    return wrong(key, concat("a whole number from ", min, " to ", max));
  out = value->as_int();
  return {};
}

Result<void> ProcessorSection::read_integer(std::string_view key, int64_t min, int64_t max,
                                            int& out) const {
  int64_t wide = out;
  TRY(read_integer(key, min, max, wide));
  out = static_cast<int>(wide);
  return {};
}

Result<void> ProcessorSection::read_positive(std::string_view key, double max, double& out) const {
  const Json* value = find(key);
  if (!value) return {};
  if (!value->is_number() || !(value->as_double() > 0) || value->as_double() > max)
    return wrong(key, concat("a number above 0, at most ", max));
  out = value->as_double();
  return {};
}

Result<std::optional<bool>> ProcessorSection::flag(std::string_view key) const {
  const Json* value = find(key);
  if (!value) return std::optional<bool>();
  if (!value->is_bool()) return wrong(key, "true or false");
  return std::optional<bool>(value->as_bool());
}

Result<void> ProcessorSection::check_class(std::string_view key,
                                           std::initializer_list<std::string_view> names) const {
  const Json* type = find(key);
  if (!type) return {};
  if (!type->is_string()) return wrong(key, "a string");
  if (std::find(names.begin(), names.end(), type->as_string()) != names.end()) return {};
  return make_error(ErrorCode::unsupported, {concat(source_, ": ", key), *names.begin(),
                                             type->as_string().substr(0, 80), kTextAlone});
}

/// A setting that is implemented for one value only, which is also its default.
Result<void> ProcessorSection::must_equal(std::string_view key, const Json& only) const {
  const Json* value = find(key);
  if (!value || *value == only) return {};
  return make_error(ErrorCode::unsupported, {concat(source_, ": ", key), only.dump(),
                                             value->dump().substr(0, 40), kTextAlone});
}

/// Three numbers, or one for all channels.
Result<void> ProcessorSection::read_channels(std::string_view key, double least,
                                             std::array<double, 3>& out) const {
  const Json* value = find(key);
  if (!value) return {};
  const auto fine = [&](const Json& number) {
    return number.is_number() && number.as_double() >= least && number.as_double() <= 1e3;
  };
  if (fine(*value)) {
    out.fill(value->as_double());
    return {};
  }
  if (!value->is_array() || value->as_array().size() != 3 ||
      !std::all_of(value->as_array().begin(), value->as_array().end(), fine))
    return wrong(key, concat("three numbers from ", least, " to 1000"));
  for (size_t c = 0; c < 3; ++c) out[c] = value->as_array()[c].as_double();
  return {};
}

Result<void> ProcessorSection::read_size(ImageProcessor& processor) const {
  const Json* size = find("size");
  if (!size) return {};
  if (!size->is_object()) return wrong("size", "an object");
  const ProcessorSection inner(*size, concat(source_, ": size"));
  if (!inner.find("shortest_edge") || !inner.find("longest_edge"))
    return wrong("size", "an object with shortest_edge and longest_edge");
  TRY(inner.read_integer("shortest_edge", 1, kAreaMax, processor.min_pixels));
  return inner.read_integer("longest_edge", 1, kAreaMax, processor.max_pixels);
}

Result<void> ProcessorSection::read_common(ImageProcessor& processor) const {
  TRY(must_equal("do_resize", Json(true)));
  TRY(must_equal("do_convert_rgb", Json(true)));
  TRY(must_equal("do_center_crop", Json(false)));
  TRY(must_equal("do_pad", Json(false)));
  TRY(must_equal("resample", Json(3)));  // PIL's number of the bicubic filter
  TRY(read_integer("patch_size", 1, 64, processor.patch));
  TRY(read_integer("temporal_patch_size", 1, 8, processor.temporal));
  TRY(read_integer("merge_size", 1, 8, processor.merge));
  TRY(read_size(processor));
  processor.rescale = TRY(flag("do_rescale")).value_or(processor.rescale);
  processor.normalize = TRY(flag("do_normalize")).value_or(processor.normalize);
  TRY(read_positive("rescale_factor", 1, processor.rescale_factor));
  TRY(read_channels("image_mean", -1e3, processor.mean));
  return read_channels("image_std", 1e-6, processor.deviation);
}

Result<void> ProcessorSection::check_areas(const ImageProcessor& processor) const {
  const int64_t least =
      std::max(int64_t{processor.factor()} * processor.factor(), processor.min_pixels);
  if (processor.max_pixels >= least) return {};
  return make_error(
      ErrorCode::corrupt,
      {concat(source_, ": largest area (longest_edge or max_pixels)"), concat("at least ", least),
       concat(processor.max_pixels), "correct the file or fetch it again"});
}

Result<std::optional<ProcessorConfig>> find_processor_config(const std::string& folder,
                                                             std::string_view nested,
                                                             const char* file) {
  constexpr const char* kShared = "processor_config.json";
  for (const char* name : {kShared, file}) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::error_code unread;
    if (!std::filesystem::exists(path, unread)) continue;
    const std::string text = TRY(read_text_file(path, kConfigBytesMax));
    Json config = TRY(parse_json(text, name, {.duplicate_keys = DuplicateKeys::keep_last}));
    if (name == file) return std::optional(ProcessorConfig{std::move(config), name});
    if (const Json* member = config.find(nested))
      return std::optional(ProcessorConfig{*member, name});
  }
  return std::optional<ProcessorConfig>();
}

}  // namespace nibble
