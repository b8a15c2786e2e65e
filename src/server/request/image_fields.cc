// The images of a request, from what its messages hold to what the engine takes.
#include <algorithm>

#include "server/request/request_fields.h"

namespace nibble {

namespace {

/// Images cannot be cut, and with them no prompt that has some.
std::optional<ApiError> truncated_images(const GenerationRequest& request) {
  if (!request.prompt_tokens_max || request.image_tokens.empty()) return std::nullopt;
  return ApiError::field("truncate_prompt_tokens",
                         {.what = "truncate_prompt_tokens beside images",
                          .expected = "one of the two",
                          .advice = "leave it out, or send fewer messages"});
}

/// A prompt of text or ids has no images for the tokens that stand for some.
std::optional<ApiError> placeholders_alone(const ServedModel& model,
                                           const GenerationRequest& request) {
  if (!model.images || request.api != Api::completions) return std::nullopt;
  const auto stands_for_media = [&](int32_t id) {
    return id == model.images->options().image_token || id == model.images->options().video_token;
  };
  for (const auto& prompt : request.prompts)
    if (const auto found = std::ranges::find_if(prompt, stands_for_media); found != prompt.end())
      return ApiError::field("prompt", {.what = "prompt",
                                        .expected = "no token that stands for an image",
                                        .found = concat(*found),
                                        .advice = "send images to /v1/chat/completions"});
  return std::nullopt;
}

/// The family's template also writes a video's place for a part that has a member `video`, whatever
/// its type says, and leaves the part's text out.
std::optional<ApiError> place_of_a_video(const ServedModel& model,
                                         std::span<const int32_t> prompt) {
  if (std::ranges::find(prompt, model.images->options().video_token) == prompt.end())
    return std::nullopt;
  return image_error({.what = "the prompt that the chat template makes",
                      .expected = "no place for a video",
                      .found = "one",
                      .advice = "send text and images without a member named video"});
}

}  // namespace

Json image_settings(FieldReader& fields, const ServedModel& model) {
  const Json* given = fields.find("mm_processor_kwargs");
  return given != nullptr && model.images ? *given : Json();
}

std::optional<ApiError> place_images(const ServedModel& model, const Json& settings,
                                     GenerationRequest& request) {
  if (!model.images) return std::nullopt;
  if (auto error = place_of_a_video(model, request.prompts.front())) return error;
  auto measured = model.images->measure(std::exchange(request.sent_images, {}), settings);
  if (auto* error = std::get_if<ApiError>(&measured)) return std::move(*error);
  request.images = std::move(std::get<std::vector<MeasuredImage>>(measured));
  std::vector<int64_t> rows;
  for (const MeasuredImage& image : request.images) rows.push_back(image.rows());
  auto placed =
      expand_placeholders(request.prompts.front(), model.images->options().image_token, rows);
  if (!placed.ok()) return image_error({.what = placed.error().message});
  request.image_tokens = std::move(placed).value();
  for (int32_t& boundary : request.cache.boundaries)
    boundary = expanded_length(boundary, request.image_tokens);
  request.cache.pinned_tokens = expanded_length(request.cache.pinned_tokens, request.image_tokens);
  return std::nullopt;
}

std::optional<ApiError> misplaced_images(const ServedModel& model, const GenerationRequest& request,
                                         Lengths lengths) {
  if (auto error = truncated_images(request)) return error;
  if (lengths == Lengths::settled) return placeholders_alone(model, request);
  return std::nullopt;
}

std::optional<ApiError> read_pixels(const ServedModel& model, GenerationRequest& request) {
  if (request.images.empty()) return std::nullopt;
  auto prepared = model.images->prepare(std::exchange(request.images, {}));
  if (auto* error = std::get_if<ApiError>(&prepared)) return std::move(*error);
  for (PreparedImage& image : std::get<std::vector<PreparedImage>>(prepared)) {
    const ImageTokens& tokens = request.image_tokens[request.media.size()];
    MediaRows rows{.span = {tokens.begin, tokens.count, image.digest}};
    rows.patches = std::move(image.patches);
    request.media.push_back(std::move(rows));
  }
  return std::nullopt;
}

}  // namespace nibble
