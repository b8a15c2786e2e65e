// Sizes are computed as the Python code computes them, in doubles and in its order.
#include "media/image_processor.h"

#include <algorithm>
#include <cmath>

#include "media/processor_section.h"

namespace nibble {
namespace {

constexpr int kAspectMax = 200;
constexpr int64_t kPatchesMax = int64_t{1} << 22;

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
  const ProcessorSection section(config, std::string(source));
  const char* type =
      section.find("image_processor_type") ? "image_processor_type" : "feature_extractor_type";
  TRY(section.check_class(
      type, {"Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen2VLImageProcessorPil"}));
  ImageProcessor processor;
  TRY(section.read_common(processor));
  TRY(section.read_integer("min_pixels", 1, kAreaMax, processor.min_pixels));  // before size
  TRY(section.read_integer("max_pixels", 1, kAreaMax, processor.max_pixels));
  TRY(section.check_areas(processor));
  return processor;
}

Result<std::optional<ImageProcessor>> load_image_processor(const std::string& folder) {
  const auto config =
      TRY(find_processor_config(folder, "image_processor", "preprocessor_config.json"));
  if (!config) return std::optional<ImageProcessor>();
  return std::optional(TRY(parse_image_processor(config->json, config->source)));
}

Result<ImageSize> resized_size(const ImageSize& size, const ImageProcessor& processor) {
  return resized_frame(size, 1, 1, processor);
}

Result<ImageSize> resized_frame(const ImageSize& size, int64_t frames, int64_t even_frames,
                                const ImageProcessor& processor) {
  if (size.width < 1 || size.height < 1 ||
      std::max(size.width, size.height) > int64_t{kAspectMax} * std::min(size.width, size.height))
    return aspect_error(size);
  const double height = size.height, width = size.width, factor = processor.factor();
  double h = std::nearbyint(height / factor) * factor;  // Python's round(): halves to even
  double w = std::nearbyint(width / factor) * factor;
  const double volume = static_cast<double>(frames) * height * width;
  const double rounded_volume = static_cast<double>(even_frames) * h * w;
  const double max_pixels = static_cast<double>(processor.max_pixels);
  const double min_pixels = static_cast<double>(processor.min_pixels);
  const auto round_down = [&] {
    const double beta = std::sqrt(volume / max_pixels);
    h = std::max(factor, std::floor(height / beta / factor) * factor);
    w = std::max(factor, std::floor(width / beta / factor) * factor);
  };
  if (rounded_volume > max_pixels) {
    round_down();
  } else if (rounded_volume < min_pixels) {
    const double beta = std::sqrt(min_pixels / volume);
    h = std::ceil(height * beta / factor) * factor;
    w = std::ceil(width * beta / factor) * factor;
    if (processor.keep_max && static_cast<double>(even_frames) * h * w > max_pixels) round_down();
  }
  const double patches = h * w / processor.patch / processor.patch;
  CHECK(h >= factor && w >= factor, w, " x ", h);  // an area of 0 is below any min_pixels
  if (patches > static_cast<double>(kPatchesMax))
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
