// Turns a body into token ids and limits; the fields are read in request_fields.cc and siblings.
#include "server/request/generation_request.h"

#include <algorithm>

#include "model/batch.h"
#include "server/request/chat_translation.h"
#include "server/request/known_fields.h"
#include "server/request/profiles.h"
#include "server/request/request_fields.h"
#include "text/tokenizer/made_tokenizer.h"

namespace nibble {

namespace {

/// Clients of the Messages API ask for models by these names, some for several; one is served.
constexpr std::string_view kAnthropicModels = "claude";

ApiError too_long(std::string_view param, std::string message) {
  return {.message = std::move(message),
          .param = std::string(param),
          .code = "context_length_exceeded"};
}

/// Settles max_tokens against every prompt and the context.
std::optional<ApiError> settle_lengths(const ServedModel& model, const RequestLimits& limits,
                                       GenerationRequest& request) {
  const char* param = request.api == Api::completions ? "prompt" : "messages";
  const size_t total = request.prompts.size() * static_cast<size_t>(request.choices);
  if (total > static_cast<size_t>(limits.choices_max))
    return ApiError::field("n", {.what = "n times the number of prompts",
                                 .expected = concat("at most ", limits.choices_max),
                                 .found = concat(total)});
  size_t longest = 0;
  for (const auto& prompt : request.prompts) {
    if (prompt.empty())
      return ApiError::field(param,
                             {.what = "the prompt is empty", .expected = "at least one token"});
    longest = std::max(longest, prompt.size());
  }
  const auto context = static_cast<size_t>(model.context_max);
  if (longest >= context)
    return too_long(param, concat("the prompt is too long: expected at most ", context - 1,
                                  " tokens", context_words(model), ", found ", longest,
                                  "; shorten it or raise --max-model-len"));
  const size_t room = context - longest;
  // Agents ask for the most that any model gives, and cannot know the context.
  const bool lowered =
      request.any_max_tokens || request.api == Api::messages || request.api == Api::responses;
  if (lowered) request.max_tokens = std::min(request.max_tokens, static_cast<int32_t>(room));
  if (static_cast<size_t>(request.max_tokens) > room)
    return too_long("max_tokens", concat("max_tokens is too large: expected at most ", room,
                                         " after a prompt of ", longest, " tokens in a context of ",
                                         context, ", found ", request.max_tokens));
  const int32_t otherwise = model.max_tokens_default.value_or(INT32_MAX);
  if (request.max_tokens == 0)  // the profile's or generation_config.json's, or all there is room
    request.max_tokens = static_cast<int32_t>(std::min<size_t>(
        room, static_cast<size_t>(request.max_tokens_default.value_or(otherwise))));
  if (request.min_tokens > request.max_tokens)
    return ApiError::field("min_tokens", {.what = "min_tokens",
                                          .expected = concat("at most ", request.max_tokens),
                                          .found = concat(request.min_tokens)});
  return std::nullopt;
}

/// Leaves prompt_tokens_max tokens of each prompt, those of the end that the request keeps. Places
/// worth remembering move with what is cut off before them.
void truncate_prompts(const ServedModel& model, GenerationRequest& request) {
  if (!request.prompt_tokens_max) return;
  int32_t most = *request.prompt_tokens_max;
  const bool limited = request.max_tokens > 0 && !request.any_max_tokens;
  if (most < 0) most = model.context_max - (limited ? request.max_tokens : 1);
  const auto kept = static_cast<size_t>(std::max(most, 1));
  for (std::vector<int32_t>& prompt : request.prompts) {
    if (prompt.size() <= kept) continue;
    if (request.kept_end == GenerationRequest::PromptEnd::first) {
      prompt.resize(kept);
      continue;
    }
    const size_t cut = prompt.size() - kept;
    prompt.erase(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(cut));
    for (int32_t& boundary : request.cache.boundaries) boundary -= static_cast<int32_t>(cut);
    std::erase_if(request.cache.boundaries, [](int32_t tokens) { return tokens < kPageTokens; });
    request.cache.pinned_tokens =
        std::max(request.cache.pinned_tokens - static_cast<int32_t>(cut), 0);
  }
  if (request.kept_end != GenerationRequest::PromptEnd::first) return;
  const auto end = static_cast<int32_t>(kept);
  std::erase_if(request.cache.boundaries, [&](int32_t tokens) { return tokens > end; });
  request.cache.pinned_tokens = std::min(request.cache.pinned_tokens, end);
}

/// Applies the settings of a profile that are no field of a body, and echoes the values that the
/// body, as it is served, has.
void use_profile(const Profile& profile, const Json& chat, GenerationRequest& request) {
  request.profile = profile.name;
  request.max_tokens_default = profile.max_tokens();
  if (request.max_tokens_default && profile.locks("max_tokens") && request.max_tokens > 0)
    request.max_tokens = std::min(request.max_tokens, *request.max_tokens_default);
  for (const char* name : {"temperature", "top_p"})
    if (const Json* value = chat.find(name); value != nullptr && request.echoed.is_object())
      request.echoed.set(name, *value);
}

/// A grammar is of a whole answer and cannot know the part of it that the client has written.
std::optional<ApiError> structure_of_a_part(const GenerationRequest& request) {
  const bool whole =
      request.structure && request.structure->kind != GrammarSource::Kind::free_calls;
  if (!whole || request.answer_start == AnswerStart::anew) return std::nullopt;
  return ApiError::field(
      request.structure_field,
      {.what = concat(request.structure_field, " beside a last message that is continued"),
       .expected = "one of the two",
       .advice = "end the messages with one of the user, or leave the structure out"});
}

/// Together they may leave no token that can follow.
std::optional<ApiError> token_rules_beside_structure(const GenerationRequest& request) {
  if (!request.structure || (request.allowed_tokens.empty() && request.banned_words.empty()))
    return std::nullopt;
  const char* name = request.allowed_tokens.empty() ? "bad_words" : "allowed_token_ids";
  return ApiError::field(name, {.what = concat(name, " beside tools or a structure of the answer"),
                                .expected = "one of the two",
                                .advice = "leave it out, or say it in the structure"});
}

ApiError unknown_model(std::string_view name) {
  return {.status = 404,
          .message = concat("the model ", shown(Json(name)), " is not served here; ",
                            "GET /v1/models lists what is"),
          .param = "model",
          .code = "model_not_found"};
}

/// The profile that the request names, or the one that stands where none is named.
struct ChosenProfile {
  const Profile* profile = nullptr;
  bool named = false;
};

/// Puts the name that answers show in the place of an unlisted one.
ChosenProfile choose_profile(const ServedModel& model, Json& body) {
  const Json* asked = body.find("model");
  if (asked == nullptr || !asked->is_string()) return {model.profiles.standing()};
  const std::string name = shown_name(asked->as_string(), model.names, model.unlisted_names);
  body.set("model", Json(name));
  const Profile* profile = profile_of(name, model.names, model.profiles);
  if (profile != nullptr) return {profile, true};
  return {model.profiles.standing()};
}

/// A body in the fields of /v1/chat/completions or /v1/completions.
TranslatedBody in_our_fields(Api api, Json body, const TranslationOptions& options, Json& echoed) {
  if (api == Api::messages) return chat_of_messages(body, options);
  if (api != Api::responses) return body;
  echoed = echoed_members(body);
  return chat_of_responses(body, options);
}

OpenedBody open_fields(Api api, Json body, const ServedModel& model, AskedFields* asked) {
  OpenedRequest opened{.request = {.api = api}};
  const auto chosen = choose_profile(model, body);
  opened.profile = chosen.profile;
  opened.by_profile = chosen.named;
  const SaysThinking says = says_thinking(api, body);
  const TranslationOptions options = {
      .asked = asked, .images = model.images ? ImageParts::kept : ImageParts::refused};
  TranslatedBody translated = in_our_fields(api, std::move(body), options, opened.request.echoed);
  if (auto* error = std::get_if<ApiError>(&translated)) return std::move(*error);
  opened.fields = std::move(std::get<Json>(translated));
  if (opened.profile != nullptr) apply_profile(*opened.profile, says, opened.fields);
  if (api == Api::completions || !model.images) return opened;
  auto media = take_media(opened.fields, model.images->options().most());
  if (auto* error = std::get_if<ApiError>(&media)) return std::move(*error);
  opened.request.sent = std::move(std::get<SentMedia>(media));
  return opened;
}

ParsedRequest finish_fields(OpenedRequest opened, const ServedModel& model,
                            const RequestLimits& limits, Lengths lengths, AskedFields* asked) {
  GenerationRequest request = std::move(opened.request);
  const Profile* profile = opened.profile;
  const bool by_profile = opened.by_profile;
  const Json& chat = opened.fields;
  FieldReader fields(chat, asked);
  read_common_fields(fields, model, limits, request);
  if (profile != nullptr) use_profile(*profile, chat, request);
  if (fields.error()) return *fields.error();
  const bool known = std::ranges::find(model.names, request.model) != model.names.end();
  const bool meant = request.api == Api::messages && request.model.starts_with(kAnthropicModels);
  if (!request.model.empty() && !known && !meant && !by_profile)
    return unknown_model(request.model);
  if (opened.judge)
    if (auto error = opened.judge(request)) return *std::move(error);
  std::optional<GrammarSource> calls;
  if (request.api == Api::completions)
    read_completion_fields(fields, model, limits, request);
  else
    calls = read_chat_fields(fields, model, limits, request);
  read_structure(fields, model, request, std::move(calls));
  if (fields.error()) return *fields.error();
  if (auto error = structure_of_a_part(request)) return *error;
  if (auto error = token_rules_beside_structure(request)) return *error;
  if (lengths == Lengths::settled)
    if (auto error = placeholders_alone(model, request)) return *error;
  truncate_prompts(model, request);
  if (lengths == Lengths::any) return request;
  if (auto error = settle_lengths(model, limits, request)) return *error;
  if (auto error = read_pixels(model, request)) return *error;
  return request;
}

/// A model for the readers of an empty request: its tokens are made up, and nothing is encoded.
ServedModel made_model() {
  const Json config = json_object({{"text_config", json_object({{"vocab_size", Json(1000)}})}});
  const std::vector<MadeFile> files = made_tokenizer(config).value();
  return {.tokenizer = Tokenizer::parse(files.front().text, "", "a made tokenizer").value()};
}

}  // namespace

OpenedBody open_generation_request(Api api, std::string_view body, const ServedModel& model,
                                   const RequestLimits& limits) {
  auto json = parse_json(body, "the request body",
                         {.bytes_max = body.size() + 1, .depth_max = limits.json_depth_max});
  if (!json.ok()) return ApiError{.message = json.error().message};
  if (!json.value().is_object())
    return ApiError{.message = concat("the request body: expected a JSON object, found ",
                                      json.value().type_name())};
  if (model.policy.unknown_fields == UnknownFields::refused)
    if (auto error = unknown_field(api, json.value())) return *std::move(error);
  return open_fields(api, std::move(json).value(), model, nullptr);
}

ParsedRequest finish_generation_request(OpenedRequest opened, const ServedModel& model,
                                        const RequestLimits& limits, Lengths lengths) {
  return finish_fields(std::move(opened), model, limits, lengths, nullptr);
}

ParsedRequest parse_generation_request(Api api, std::string_view body, const ServedModel& model,
                                       const RequestLimits& limits, Lengths lengths) {
  OpenedBody opened = open_generation_request(api, body, model, limits);
  if (auto* error = std::get_if<ApiError>(&opened)) return std::move(*error);
  return finish_generation_request(std::move(std::get<OpenedRequest>(opened)), model, limits,
                                   lengths);
}

AskedFields fields_asked(Api api) {
  static const ServedModel model = made_model();
  AskedFields asked;
  // A translation refuses an empty body, so that the names of its chat are not among its own.
  OpenedBody opened = open_fields(api, Json(Json::Object{}), model, &asked);
  if (auto* empty = std::get_if<OpenedRequest>(&opened))
    finish_fields(std::move(*empty), model, {}, Lengths::any, &asked);
  return asked;
}

}  // namespace nibble
