// Every key is read with its kind and range; sizes are computed as the Python code computes them.
#include "media/image_processor.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/file.h"

namespace nibble {
namespace {

constexpr int kAspectMax = 200;
constexpr int64_t kPixelsMax = int64_t{1} << 31;
constexpr int64_t kPatchesMax = int64_t{1} << 22;
constexpr uint64_t kConfigBytesMax = 1 << 20;

/// One object of the configuration, whose name is in errors.
struct Section {
  const Json& json;
  std::string source;

  Error wrong(std::string_view key, std::string_view expected) const {
    const Json* value = json.find(key);
    const bool plain = value->is_number() || value->is_bool();
    return make_error(ErrorCode::corrupt, {concat(source, ": ", key), expected,
                                           plain ? value->dump() : value->type_name(),
                                           "correct the file or fetch it again"});
  }
  const Json* find(std::string_view key) const {  // null counts as absent, as in transformers
    const Json* value = json.find(key);
    return value && value->is_null() ? nullptr : value;
  }
  template <typename T>
  Result<void> read_integer(std::string_view key, int64_t min, int64_t max, T& out) const {
    const Json* value = find(key);
    if (!value) return {};
    if (!value->is_int() || value->as_int() < min || value->as_int() > max)
      return wrong(key, concat("a whole number from ", min, " to ", max));
    out = static_cast<T>(value->as_int());
    return {};
  }
  Result<void> read_flag(std::string_view key, bool& out) const {
    const Json* value = find(key);
    if (!value) return {};
    if (!value->is_bool()) return wrong(key, "true or false");
    out = value->as_bool();
    return {};
  }
  /// Three numbers, or one for all channels.
  Result<void> read_channels(std::string_view key, double least, std::array<double, 3>& out) const {
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
  /// A setting that is implemented for one value only, which is also its default.
  Result<void> must_equal(std::string_view key, const Json& only) const {
    const Json* value = find(key);
    if (!value || *value == only) return {};
    return make_error(ErrorCode::unsupported,
                      {concat(source, ": ", key), only.dump(), value->dump().substr(0, 40),
                       "images of this checkpoint cannot be prepared"});
  }
};

Result<void> check_class(const Section& section) {
  const Json* type = section.find("image_processor_type");
  if (!type) type = section.find("feature_extractor_type");
  if (!type) return {};
  if (!type->is_string()) return section.wrong("image_processor_type", "a string");
  const std::string& name = type->as_string();
  if (name == "Qwen2VLImageProcessor" || name == "Qwen2VLImageProcessorFast" ||
      name == "Qwen2VLImageProcessorPil")
    return {};
  return make_error(ErrorCode::unsupported,
                    {concat(section.source, ": image_processor_type"), "Qwen2VLImageProcessor",
                     name.substr(0, 80), "images of this checkpoint cannot be prepared"});
}

Result<void> check_implemented(const Section& section) {
  TRY(check_class(section));
  TRY(section.must_equal("do_resize", Json(true)));
  TRY(section.must_equal("do_convert_rgb", Json(true)));
  TRY(section.must_equal("resample", Json(3)));  // PIL's number of the bicubic filter
  return {};
}

/// size.shortest_edge and size.longest_edge; then min_pixels and max_pixels, which go before them.
Result<void> read_pixels(const Section& section, ImageProcessor& processor) {
  if (const Json* size = section.find("size")) {
    if (!size->is_object()) return section.wrong("size", "an object");
    const Section inner{*size, concat(section.source, ": size")};
    if (!inner.find("shortest_edge") || !inner.find("longest_edge"))
      return section.wrong("size", "an object with shortest_edge and longest_edge");
    TRY(inner.read_integer("shortest_edge", 1, kPixelsMax, processor.min_pixels));
    TRY(inner.read_integer("longest_edge", 1, kPixelsMax, processor.max_pixels));
  }
  TRY(section.read_integer("min_pixels", 1, kPixelsMax, processor.min_pixels));
  TRY(section.read_integer("max_pixels", 1, kPixelsMax, processor.max_pixels));
  const int64_t least = int64_t{processor.factor()} * processor.factor();
  if (processor.max_pixels < std::max(least, processor.min_pixels))
    return make_error(ErrorCode::corrupt,
                      {concat(section.source, ": largest area (longest_edge or max_pixels)"),
                       concat("at least ", std::max(least, processor.min_pixels)),
                       concat(processor.max_pixels), "correct the file or fetch it again"});
  return {};
}

Error aspect_error(const ImageSize& size) {
  return make_error(ErrorCode::invalid_argument,
                    {"image", concat("a longer edge of at most ", kAspectMax, " shorter ones"),
                     concat(size.width, " x ", size.height, " pixels"), "crop it"});
}

}  // namespace

Result<ImageProcessor> parse_image_processor(const Json& config, std::string_view source) {
  if (!config.is_object())
    return make_error(ErrorCode::corrupt, {source, "an object", config.type_name(),
                                           "correct the file or fetch it again"});
  const Section section{config, std::string(source)};
  TRY(check_implemented(section));
  ImageProcessor processor;
  TRY(section.read_integer("patch_size", 1, 64, processor.patch));
  TRY(section.read_integer("temporal_patch_size", 1, 8, processor.temporal));
  TRY(section.read_integer("merge_size", 1, 8, processor.merge));
  TRY(read_pixels(section, processor));
  TRY(section.read_flag("do_rescale", processor.rescale));
  TRY(section.read_flag("do_normalize", processor.normalize));
  TRY(section.read_channels("image_mean", -1e3, processor.mean));
  TRY(section.read_channels("image_std", 1e-6, processor.deviation));
  if (const Json* factor = section.find("rescale_factor")) {
    if (!factor->is_number() || !(factor->as_double() > 0) || factor->as_double() > 1)
      return section.wrong("rescale_factor", "a number above 0, at most 1");
    processor.rescale_factor = factor->as_double();
  }
  return processor;
}

Result<std::optional<ImageProcessor>> load_image_processor(const std::string& folder) {
  const std::filesystem::path path(folder);
  for (const char* name : {"processor_config.json", "preprocessor_config.json"}) {
    std::error_code unread;
    if (!std::filesystem::exists(path / name, unread)) continue;
    const std::string text = TRY(read_text_file(path / name, kConfigBytesMax));
    const JsonLimits limits{.duplicate_keys = DuplicateKeys::keep_last};
    const Json config = TRY(parse_json(text, name, limits));
    const bool nested = std::string_view(name) == "processor_config.json";
    const Json* settings = nested ? config.find("image_processor") : &config;
    if (settings) return std::optional<ImageProcessor>(TRY(parse_image_processor(*settings, name)));
  }
  return std::optional<ImageProcessor>();
}

Result<ImageSize> resized_size(const ImageSize& size, const ImageProcessor& processor) {
  if (size.width < 1 || size.height < 1 ||
      std::max(size.width, size.height) > int64_t{kAspectMax} * std::min(size.width, size.height))
    return aspect_error(size);
  // In doubles and in the order of the Python code, whose round() takes halves to the even side.
  const double height = size.height, width = size.width, factor = processor.factor();
  double h = std::nearbyint(height / factor) * factor;
  double w = std::nearbyint(width / factor) * factor;
  const double area = height * width;
  const double max_pixels = static_cast<double>(processor.max_pixels);
  const double min_pixels = static_cast<double>(processor.min_pixels);
  if (h * w > max_pixels) {
    const double beta = std::sqrt(area / max_pixels);
    h = std::max(factor, std::floor(height / beta / factor) * factor);
    w = std::max(factor, std::floor(width / beta / factor) * factor);
  } else if (h * w < min_pixels) {
    const double beta = std::sqrt(min_pixels / area);
    h = std::ceil(height * beta / factor) * factor;
    w = std::ceil(width * beta / factor) * factor;
  }
  const double patches = h * w / processor.patch / processor.patch;
  if (h < factor || w < factor || patches > static_cast<double>(kPatchesMax))
    return make_error(ErrorCode::invalid_argument,
                      {"image", concat("at most ", kPatchesMax, " patches after resizing"),
                       concat(size.width, " x ", size.height, " pixels"), "crop it"});
  return ImageSize{.width = static_cast<int>(w), .height = static_cast<int>(h)};
}

Result<ImageGrid> grid_of(const ImageSize& size, const ImageProcessor& processor) {
  const ImageSize resized = TRY(resized_size(size, processor));
  return ImageGrid{
      .t = 1, .h = resized.height / processor.patch, .w = resized.width / processor.patch};
}

}  // namespace nibble
