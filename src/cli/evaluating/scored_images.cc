// Runs of image tokens, one for each image.
#include "cli/evaluating/scored_images.h"

#include <algorithm>

namespace nibble {
namespace {

/// Tokens of one image at most; the tower has memory for the images that are given.
constexpr int64_t kImageTokensMost = int64_t{1} << 20;

/// Runs of image tokens in all sequences.
size_t places_in(const std::vector<std::vector<int32_t>>& sequences, int32_t token) {
  size_t places = 0;
  for (const auto& ids : sequences)
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == token && (i == 0 || ids[i - 1] != token)) ++places;
  return places;
}

Error error_of(const ApiError& error) { return {ErrorCode::invalid_argument, error.message}; }

}  // namespace

Result<std::vector<std::vector<PlacedImage>>> place_in_ids(
    const std::vector<std::shared_ptr<const MediaPatches>>& images, const VisionConfig& vision,
    std::vector<std::vector<int32_t>>& sequences) {
  const int32_t token = vision.image_token;
  if (const size_t places = places_in(sequences, token); places != images.size())
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat("places of images in --ids, of token ", token),
                       .expected = concat(images.size(), ", one for each --image"),
                       .found = concat(places)});
  std::vector<std::vector<PlacedImage>> placed;
  size_t next = 0;
  for (auto& ids : sequences) {
    placed.emplace_back();
    std::vector<int32_t> expanded;
    for (auto at = ids.begin(); at != ids.end();) {
      if (*at != token) {
        expanded.push_back(*at++);
        continue;
      }
      const auto end = std::find_if(at, ids.end(), [&](int32_t id) { return id != token; });
      const int64_t rows = images[next]->grid.rows(vision.merge);
      if (end - at != 1 && end - at != rows)
        return make_error(
            ErrorCode::invalid_argument,
            {.what = concat("ids, sequence ", placed.size() - 1, ", position ", at - ids.begin()),
             .expected =
                 concat("one token ", token, " or ", rows, ", the rows of image ", next + 1),
             .found = concat(end - at)});
      placed.back().push_back({static_cast<int32_t>(expanded.size()), images[next++]});
      expanded.insert(expanded.end(), static_cast<size_t>(rows), token);
      at = end;
    }
    ids = std::move(expanded);
  }
  return placed;
}

Result<std::vector<std::vector<PlacedImage>>> images_of_ids(
    const std::vector<std::string>& urls, const ImageFlags& flags, const ModelConfig& config,
    const std::filesystem::path& folder, std::vector<std::vector<int32_t>>& sequences) {
  std::string notice;  // about requests
  ImageFlags without_videos = flags;
  without_videos.intake.videos.videos_max = 0;
  const auto intake =
      TRY(make_image_intake(without_videos, config, kImageTokensMost, folder, notice));
  if (!intake)
    return make_error(ErrorCode::unsupported,
                      {.what = "--image",
                       .expected = "a model that takes images: a vision tower that is loaded, "
                                   "preprocessor_config.json, --limit-mm-per-prompt above 0",
                       .found = "none"});
  std::vector<SentImage> sent;
  for (const std::string& url : urls) sent.push_back({.url = url});
  auto measured = intake->measure(sent, Json());
  if (const auto* error = std::get_if<ApiError>(&measured)) return error_of(*error);
  auto prepared = intake->prepare(std::get<std::vector<MeasuredImage>>(measured));
  if (const auto* error = std::get_if<ApiError>(&prepared)) return error_of(*error);
  std::vector<std::shared_ptr<const MediaPatches>> images;
  for (PreparedImage& image : std::get<std::vector<PreparedImage>>(prepared))
    images.push_back(std::move(image.patches));
  auto placed = TRY(place_in_ids(images, *config.vision, sequences));
  for (const auto& of_one : placed)
    if (of_one.size() > flags.intake.images_max)
      return make_error(ErrorCode::invalid_argument,
                        {.what = "images of a sequence of --ids",
                         .expected = concat("at most ", flags.intake.images_max),
                         .found = concat(of_one.size()),
                         .advice = "--limit-mm-per-prompt raises that"});
  return placed;
}

}  // namespace nibble
