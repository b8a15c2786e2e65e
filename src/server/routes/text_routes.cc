// Requests are read as those that run are, so what is counted is what would run.
#include "server/routes/text_routes.h"

#include "server/answer/answer_writer.h"
#include "server/request/field_reader.h"

namespace nibble {

namespace {

Json ids_json(std::span<const int32_t> ids) {
  Json::Array list;
  for (const int32_t id : ids) list.push_back(Json(id));
  return Json(std::move(list));
}

OpenedText answered(HttpResponse response) { return {.response = std::move(response)}; }

/// Opens a request of any length whose prompt `answer` then makes an answer of.
OpenedText open_prompt(Api api, std::string_view body, const ServedModel& model,
                       const RequestLimits& limits, decltype(OpenedText::answer) answer) {
  OpenedBody opened = open_generation_request(api, body, model, limits);
  if (const auto* error = std::get_if<ApiError>(&opened))
    return answered(error_response(api, *error));
  return {.request = std::move(std::get<OpenedRequest>(opened)), .answer = std::move(answer)};
}

/// The body's object, or why it is none.
std::variant<Json, ApiError> object_in(std::string_view body, const RequestLimits& limits) {
  auto json = parse_json(body, "the request body",
                         {.bytes_max = body.size() + 1, .depth_max = limits.json_depth_max});
  if (!json.ok()) return ApiError{.message = json.error().message};
  if (json.value().is_object()) return std::move(json).value();
  return ApiError{.message = concat("the request body: expected a JSON object, found ",
                                    json.value().type_name())};
}

}  // namespace

HttpResponse finish_text(OpenedText opened, const ServedModel& model, const RequestLimits& limits) {
  if (!opened.request) return std::move(opened.response);
  const Api api = opened.request->request.api;
  ParsedRequest parsed =
      finish_generation_request(*std::move(opened.request), model, limits, Lengths::any);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return error_response(api, *error);
  auto& request = std::get<GenerationRequest>(parsed);
  return opened.answer({std::move(request.prompts.front()), std::move(request.placed.places)},
                       model);
}

OpenedText count_tokens(Api api, std::string_view body, const ServedModel& model,
                        const RequestLimits& limits) {
  return open_prompt(
      api, body, model, limits,
      [api](const TextPrompt& prompt, const ServedModel&) -> HttpResponse {
        const Json count(prompt.ids.size());
        if (api == Api::messages) return {.body = json_object({{"input_tokens", count}}).dump()};
        const Json object("response.input_tokens");
        return {.body = json_object({{"object", object}, {"input_tokens", count}}).dump()};
      });
}

OpenedText apply_template(Api, std::string_view body, const ServedModel& model,
                          const RequestLimits& limits) {
  return open_prompt(
      Api::chat, body, model, limits,
      [](const TextPrompt& prompt, const ServedModel& served) -> HttpResponse {
        const std::string text =
            served.tokenizer.decode(without_expansion(prompt.ids, prompt.media), SkipSpecial::no);
        return {
            .body =
                json_object({{"prompt", Json(text)}, {"count", Json(prompt.ids.size())}}).dump()};
      });
}

OpenedText tokenize(Api, std::string_view body, const ServedModel& model,
                    const RequestLimits& limits) {
  auto read = object_in(body, limits);
  if (const auto* error = std::get_if<ApiError>(&read)) return answered(error->response());
  Json& object = std::get<Json>(read);
  const bool chat = object.find("messages") != nullptr;
  FieldReader fields(object);
  const bool with_texts = fields.flag("return_token_strs").value_or(false);
  if (fields.error()) return answered(fields.error()->response());
  const Json* content = object.find("content");
  if (!chat && content != nullptr && object.find("prompt") == nullptr)
    object.set("prompt", Json(*content));
  return open_prompt(
      chat ? Api::chat : Api::completions, object.dump(), model, limits,
      [with_texts](const TextPrompt& prompt, const ServedModel& served) -> HttpResponse {
        Json texts;
        if (with_texts) {
          texts = Json(Json::Array{});
          for (const int32_t id : prompt.ids)
            texts.push_back(Json(served.tokenizer.decode({&id, 1}, SkipSpecial::no)));
        }
        return {.body = json_object({{"count", Json(prompt.ids.size())},
                                     {"max_model_len", Json(served.context_max)},
                                     {"tokens", ids_json(prompt.ids)},
                                     {"token_strs", std::move(texts)}})
                            .dump()};
      });
}

OpenedText detokenize(Api, std::string_view body, const ServedModel& model,
                      const RequestLimits& limits) {
  auto read = object_in(body, limits);
  if (const auto* error = std::get_if<ApiError>(&read)) return answered(error->response());
  const Json* tokens = std::get<Json>(read).find("tokens");
  std::vector<int32_t> ids;
  const bool list = tokens != nullptr && tokens->is_array();
  for (const Json& id : list ? tokens->as_array() : Json::Array{Json()}) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() >= model.vocab_rows)
      return answered(ApiError::field("tokens", {.what = "tokens",
                                                 .expected = concat("a list of token ids below ",
                                                                    model.vocab_rows),
                                                 .found = list                ? shown(id)
                                                          : tokens == nullptr ? "nothing"
                                                                              : shown(*tokens)})
                          .response());
    ids.push_back(static_cast<int32_t>(id.as_int()));
  }
  const Json text(model.tokenizer.decode(ids, SkipSpecial::no));
  return answered({.body = json_object({{"prompt", text}, {"content", text}}).dump()});
}

HttpResponse tokenizer_info(const ServedModel& model) {
  const auto id = [](std::optional<int32_t> tag) { return tag ? Json(*tag) : Json(); };
  const auto eos = model.tokenizer.eos_token_id();
  return {.body = json_object(
                      {{"model_max_length", Json(model.context_max)},
                       {"eos_token",
                        eos ? Json(model.tokenizer.id_to_token_bytes(*eos).value_or("")) : Json()},
                       {"eos_token_id", id(eos)},
                       {"vocab_size", Json(model.vocab_rows)},
                       {"stop_token_ids", ids_json(model.stop_ids)},
                       {"has_chat_template", Json(model.chat_template.has_value())},
                       {"think_begin", id(model.tags.think_begin)},
                       {"think_end", id(model.tags.think_end)},
                       {"tool_call_begin", id(model.tags.tool_begin)},
                       {"tool_call_end", id(model.tags.tool_end)}})
                      .dump()};
}

}  // namespace nibble
