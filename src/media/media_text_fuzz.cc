// Fuzz entry: the texts that bring media. Base64 decodes to as many bytes as its length says; a
// processor's settings that are taken give sizes of whole tokens, a request's within its bounds;
// what the programs that decode videos answer keeps the limits.
#include <cstdint>

#include "media/data_url.h"
#include "media/image_processor.h"
#include "media/processor_request.h"
#include "media/video/ppm_stream.h"
#include "media/video/video_format.h"
#include "media/video/video_probe.h"
#include "media/video_processor.h"

namespace {

void use_sizes(const nibble::ImageProcessor& processor) {
  for (const nibble::ImageSize size : {nibble::ImageSize{1, 1}, {640, 480}, {200, 1}, {9, 1800}}) {
    const auto resized = nibble::resized_size(size, processor);
    if (!resized.ok()) continue;
    const int factor = processor.factor();
    const auto [width, height] = resized.value();
    CHECK(width % factor == 0 && width > 0 && height % factor == 0 && height > 0);
    const bool narrow = width == factor || height == factor;
    CHECK(!processor.keep_max || narrow || int64_t{width} * height <= processor.max_pixels);
  }
}

void use_processor(const nibble::Json& config) {
  const auto processor = nibble::parse_image_processor(config, "fuzz");
  if (!processor.ok()) return;
  use_sizes(processor.value());
  const auto request = nibble::with_request_settings(processor.value(), config);
  if (!request.ok()) return;
  CHECK(request.value().max_pixels <= processor.value().max_pixels);
  use_sizes(request.value());
}

void use_video_processor(const nibble::Json& config) {
  const auto processor = nibble::parse_video_processor(config, "fuzz");
  if (!processor.ok()) return;
  const auto frames = nibble::sampled_frames(1000, 29.97, processor.value());
  CHECK(frames.ok() && !frames.value().empty() && frames.value().back() < 1000);
  const auto grid = nibble::video_grid({320, 240}, std::ssize(frames.value()), processor.value());
  CHECK(!grid.ok() || grid.value().patches() > 0);
}

void use_video_answers(std::string_view text) {
  const nibble::VideoLimits limits{.pixels_max = 100};
  const auto facts = nibble::parse_probe(text, limits);
  CHECK(!facts.ok() || (facts.value().frames > 0 && facts.value().fps > 0 &&
                        int64_t{facts.value().size.width} * facts.value().size.height <= 100));
  nibble::PpmStream frames(limits.pixels_max, [](const nibble::RgbImage& frame) {
    CHECK(frame.pixels.size() == size_t{3} * frame.width * frame.height, frame.pixels.size());
    return nibble::Result<void>();
  });
  const auto bytes = std::as_bytes(std::span(text));
  (void)nibble::sniff_video_format(bytes);
  const size_t half = bytes.size() / 2;
  if (frames.add(bytes.first(half)).ok() && frames.add(bytes.subspan(half)).ok())
    (void)frames.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto url = nibble::parse_data_url(text, 100);
  CHECK(!url.ok() || url.value().size() <= 100);
  const auto bytes = nibble::decode_base64(text, size);
  CHECK(!bytes.ok() || (bytes.value().size() + 2) / 3 * 4 == size);
  use_video_answers(text);
  const auto config = nibble::parse_json(text, "fuzz");
  if (!config.ok()) return 0;
  use_processor(config.value());
  use_video_processor(config.value());
  return 0;
}
