// The images and videos of a request, from what its messages hold to what the engine takes.
#include <algorithm>
#include <cstdio>

#include "server/request/request_fields.h"

namespace nibble {

namespace {

/// Images and videos cannot be cut, and with them no prompt that has some.
std::optional<ApiError> truncated_images(const GenerationRequest& request) {
  if (!request.prompt_tokens_max || request.sent.empty()) return std::nullopt;
  return ApiError::field("truncate_prompt_tokens",
                         {.what = "truncate_prompt_tokens beside images or videos",
                          .expected = "one of the two",
                          .advice = "leave it out, or send fewer messages"});
}

/// The ids that the template writes for media. Errors: 400 where the tokenizer lacks those that
/// stand around the frames of a video.
std::variant<MediaIds, ApiError> media_ids(const ServedModel& model, bool videos) {
  const ImageIntakeOptions& options = model.images->options();
  MediaIds ids{.image = options.image_token, .video = options.video_token};
  const auto start = model.tokenizer.token_to_id("<|vision_start|>");
  const auto end = model.tokenizer.token_to_id("<|vision_end|>");
  if (start && end) {
    ids.vision_start = *start;
    ids.vision_end = *end;
  } else if (videos) {
    return image_error({.what = "this model's tokenizer",
                        .expected = "<|vision_start|> and <|vision_end|>, which stand around the "
                                    "frames of a video",
                        .found = "others",
                        .advice = "send images instead"});
  }
  return ids;
}

/// The tokens that videos put into the prompt. Each time is tokenised on its own, as vLLM does it.
Result<std::vector<VideoTokens>> tokens_of(const Tokenizer& tokenizer,
                                           std::span<const PreparedSteps> videos) {
  std::vector<VideoTokens> tokens;
  for (const PreparedSteps& video : videos) {
    VideoTokens& out = tokens.emplace_back();
    out.rows = video.rows;
    for (const double seconds : video.times) {
      char text[64];
      std::snprintf(text, sizeof text, "<%.1f seconds>", seconds);
      out.times.push_back(TRY(tokenizer.encode(text, SpecialTokens::plain_text)));
    }
  }
  return tokens;
}

/// Images with their headers read and videos decoded.
std::optional<ApiError> take_in(const ServedModel& model, const Json& settings,
                                GenerationRequest& request) {
  const SentMedia sent = std::exchange(request.sent, {});
  const auto abandoned = std::exchange(request.abandoned, nullptr);
  // Settings are for what there is; without either they are read, so that wrong ones are told.
  if (!sent.images.empty() || sent.videos.empty()) {
    auto measured = model.images->measure(sent.images, settings);
    if (auto* error = std::get_if<ApiError>(&measured)) return std::move(*error);
    request.images = std::move(std::get<std::vector<MeasuredImage>>(measured));
  }
  if (sent.videos.empty()) return std::nullopt;
  VideoRequest asked{.settings = settings, .context_max = model.context_max, .gone = abandoned};
  for (const MeasuredImage& image : request.images) asked.image_bytes += image.patch_bytes();
  auto videos = model.images->videos().prepare(sent.videos, asked);
  if (auto* error = std::get_if<ApiError>(&videos)) return std::move(*error);
  request.videos = std::move(std::get<std::vector<PreparedSteps>>(videos));
  return std::nullopt;
}

}  // namespace

Json image_settings(FieldReader& fields, const ServedModel& model) {
  const Json* given = fields.find("mm_processor_kwargs");
  return given != nullptr && model.images ? *given : Json();
}

std::optional<ApiError> place_images(const ServedModel& model, const Json& settings,
                                     GenerationRequest& request) {
  if (!model.images) return std::nullopt;
  if (auto error = truncated_images(request)) return error;
  const auto ids = media_ids(model, !request.sent.videos.empty());
  if (const auto* error = std::get_if<ApiError>(&ids)) return *error;
  if (auto error = take_in(model, settings, request)) return error;
  std::vector<int64_t> rows;
  for (const MeasuredImage& image : request.images) rows.push_back(image.rows());
  const auto videos = tokens_of(model.tokenizer, request.videos);
  if (!videos.ok()) return ApiError::from(videos.error());
  auto placed =
      expand_placeholders(request.prompts.front(), std::get<MediaIds>(ids), rows, videos.value());
  if (!placed.ok()) return image_error({.what = placed.error().message});
  request.placed = std::move(placed).value();
  for (int32_t& boundary : request.cache.boundaries)
    boundary = expanded_length(boundary, request.placed.places);
  request.cache.pinned_tokens = expanded_length(request.cache.pinned_tokens, request.placed.places);
  return std::nullopt;
}

std::optional<ApiError> placeholders_alone(const ServedModel& model,
                                           const GenerationRequest& request) {
  if (!model.images || request.api != Api::completions) return std::nullopt;
  const auto stands_for_media = [&](int32_t id) {
    return id == model.images->options().image_token || id == model.images->options().video_token;
  };
  for (const auto& prompt : request.prompts)
    if (const auto found = std::ranges::find_if(prompt, stands_for_media); found != prompt.end())
      return ApiError::field("prompt", {.what = "prompt",
                                        .expected = "no token that stands for an image or a video",
                                        .found = concat(*found),
                                        .advice = "send them to /v1/chat/completions"});
  return std::nullopt;
}

std::optional<ApiError> read_pixels(const ServedModel& model, GenerationRequest& request) {
  const auto put = [&request](const MediaTokens& tokens, PreparedImage&& image) {
    MediaRows rows{.span = {tokens.begin, tokens.count, image.digest}};
    rows.patches = std::move(image.patches);
    request.media.push_back(std::move(rows));
  };
  if (!request.images.empty()) {
    auto prepared = model.images->prepare(std::exchange(request.images, {}));
    if (auto* error = std::get_if<ApiError>(&prepared)) return std::move(*error);
    auto& images = std::get<std::vector<PreparedImage>>(prepared);
    for (size_t i = 0; i < images.size(); ++i) put(request.placed.images[i], std::move(images[i]));
  }
  auto videos = std::exchange(request.videos, {});
  for (size_t v = 0; v < videos.size(); ++v)
    for (size_t t = 0; t < videos[v].steps.size(); ++t)
      put(request.placed.videos[v][t], std::move(videos[v].steps[t]));
  std::ranges::sort(request.media, {}, [](const MediaRows& rows) { return rows.span.begin; });
  return std::nullopt;
}

}  // namespace nibble
