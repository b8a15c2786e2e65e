// Sizes first, by headers alone, then pixels: what does not fit is refused before it is decoded.
#include "server/images/image_intake.h"

#include <algorithm>

#include "media/image_patches.h"
#include "media/processor_request.h"
#include "server/images/media_bytes.h"

namespace nibble {

namespace {

constexpr std::string_view kExample = "data:image/png;base64,...";

/// The patches of a picture and the memory that they have.
struct HeldPatches {
  explicit HeldPatches(const std::shared_ptr<ByteBudget>& memory) : share(memory) {}
  ByteBudget::Share share;
  MediaPatches patches;
};

ApiError refused(size_t index, const Error& error) {
  ApiError refusal = image_error({.what = concat(image_name(index), ": ", error.message)});
  if (error.code == ErrorCode::no_memory || error.code == ErrorCode::internal) refusal.status = 503;
  return refusal;
}

/// The processor has fewer pixels where the client asked for a low detail.
Result<ImageProcessor> by_detail(const ImageProcessor& asked, ImageDetail detail) {
  if (detail == ImageDetail::full || asked.max_pixels <= kLowDetailPixels) return asked;
  return with_pixels(asked, std::min(asked.min_pixels, kLowDetailPixels), kLowDetailPixels);
}

}  // namespace

ImageIntake::ImageIntake(ImageIntakeOptions options)
    : options_(std::move(options)),
      memory_(std::make_shared<ByteBudget>(options_.memory_bytes_max)),
      videos_(options_.videos, {.frames = options_.limits,
                                .tokens_max = options_.tokens_max,
                                .memory = memory_,
                                .fetcher = options_.fetcher}) {}

Result<MeasuredImage> ImageIntake::measure_one(const SentImage& image, const ImageProcessor& asked,
                                               ImageFetcher::Clock::time_point deadline) const {
  MeasuredImage measured;
  measured.bytes = TRY(media_bytes(image.url, options_.limits.encoded_bytes_max,
                                   options_.fetcher.get(), deadline, kExample));
  measured.processor = TRY(by_detail(asked, image.detail));
  const ImageSize size = TRY(read_image_size(measured.bytes, options_.limits));
  measured.grid = TRY(grid_of(size, measured.processor));
  // Both edges are at least one token long, so the narrowest images may exceed the bound on pixels.
  if (measured.rows() > options_.tokens_max)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "its tokens",
                       .expected = concat("at most ", options_.tokens_max),
                       .found = concat(measured.rows()),
                       .advice = "send another shape of it, or raise --max-image-tokens"});
  return measured;
}

std::variant<std::vector<MeasuredImage>, ApiError> ImageIntake::measure(
    std::span<const SentImage> images, const Json& settings) const {
  ImageProcessor asked = options_.processor;
  if (!settings.is_null()) {
    auto given = with_request_settings(options_.processor, settings);
    if (!given.ok())
      return ApiError{.message = given.error().message, .param = "mm_processor_kwargs"};
    asked = std::move(given).value();
  }
  const auto deadline =
      options_.fetcher ? options_.fetcher->deadline() : ImageFetcher::Clock::time_point{};
  std::vector<MeasuredImage> measured;
  for (const SentImage& image : images) {
    auto one = measure_one(image, asked, deadline);
    if (!one.ok()) return refused(measured.size(), one.error());
    measured.push_back(std::move(one).value());
  }
  return measured;
}

Result<PreparedImage> ImageIntake::prepare_one(const MeasuredImage& image) const {
  auto held = std::make_shared<HeldPatches>(memory_);
  if (!held->share.grow_to(static_cast<size_t>(image.patch_bytes())))
    return make_error(ErrorCode::no_space,
                      {.what = "the images and videos of other requests take all "
                               "memory for them; try again later"});
  const RgbImage pixels = TRY(decode_image(image.bytes, options_.limits));
  ImagePatches cut = TRY(prepare_image(pixels, image.processor));
  if (cut.grid != image.grid)
    return make_error(
        ErrorCode::corrupt,
        {.what = "its pixels", .expected = "the size that its header says", .found = "another"});
  held->patches.grid = {.t = cut.grid.t, .h = cut.grid.h, .w = cut.grid.w};
  held->patches.levels = std::move(cut.levels);
  held->patches.values = cut.values;
  return PreparedImage{.digest = cut.digest, .patches = {held, &held->patches}};
}

std::variant<std::vector<PreparedImage>, ApiError> ImageIntake::prepare(
    std::span<const MeasuredImage> images) const {
  int64_t bytes = 0;
  for (const MeasuredImage& image : images) bytes += image.patch_bytes();
  if (static_cast<size_t>(bytes) > options_.memory_bytes_max)
    return image_error({.what = "the pixels of a request's images",
                        .expected = concat("at most ", options_.memory_bytes_max, " bytes"),
                        .found = concat(bytes),
                        .advice = "send fewer or smaller ones, or raise --max-image-memory"});
  std::vector<PreparedImage> prepared;
  for (const MeasuredImage& image : images) {
    auto one = prepare_one(image);
    if (!one.ok() && one.error().code == ErrorCode::no_space) return ApiError::from(one.error());
    if (!one.ok()) return refused(prepared.size(), one.error());
    prepared.push_back(std::move(one).value());
  }
  images_ += static_cast<int64_t>(prepared.size());
  return prepared;
}

ImageIntake::Counts ImageIntake::counts() const {
  return {.images = images_, .videos = videos_.prepared(), .held_bytes = memory_->taken()};
}

}  // namespace nibble
