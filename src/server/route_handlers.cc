// The handlers of routes.cc: small ones answer at once, long ones go to another thread.
#include "server/route_handlers.h"

#include <algorithm>
#include <charconv>

#include "server/answer_writer.h"
#include "server/profiles.h"
#include "server/server_state.h"
#include "server/text_routes.h"

namespace nibble {

namespace {

constexpr size_t kRequestIdBytesMax = 128;

HttpResponse too_busy(Api api) {
  return error_response(
      api, ApiError::from({ErrorCode::no_space, "too many requests are waiting; try again later"}));
}

/// %2F and the like as the bytes they stand for; what is malformed stays as it is.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const bool coded = text[i] == '%' && i + 2 < text.size() &&
                       std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr ==
                           text.data() + i + 3;
    out.push_back(coded ? static_cast<char>(byte) : text[i]);
    if (coded) i += 2;
  }
  return out;
}

/// The client's x-request-id if it is harmless, else a new one.
std::string request_id_of(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  const bool sane = !given.empty() && given.size() <= kRequestIdBytesMax &&
                    std::ranges::all_of(given, [](char c) { return c > ' ' && c < 127; });
  return sane ? std::string(given) : random_id("req_");
}

/// Answers when it is done; 409 while requests run.
void rest(ServerState& server, Engine::Rest wanted, std::shared_ptr<HttpExchange> exchange) {
  server.engine->rest(wanted, [&server, exchange](const Result<void>& outcome) {
    const auto response = std::make_shared<HttpResponse>(HttpResponse{.body = "{}"});
    if (!outcome.ok())
      *response = ApiError{.status = 409, .message = outcome.error().message}.response();
    server.http->post([response, exchange] { exchange->respond(std::move(*response)); });
  });
}

Json model_card(const ServedModel& model, std::string_view name) {
  return Json(Json::Object{{"id", Json(name)},
                           {"object", Json("model")},
                           {"created", Json(model.created)},
                           {"owned_by", Json("nibble")},
                           {"root", Json(model.names.front())},
                           {"max_model_len", Json(model.context_max)}});
}

}  // namespace

void answer_health(ServerState& server, Call call) {
  if (server.signals == 0) return call.exchange->respond({.body = R"({"status":"ok"})"});
  call.exchange->respond({.status = 503, .body = R"({"status":"draining"})"});
}

void answer_live(ServerState&, Call call) {
  call.exchange->respond({.body = R"({"status":"ok"})"});
}

void answer_version(ServerState&, Call call) {
  call.exchange->respond({.body = concat("{\"version\":\"", NIBBLE_VERSION, "\"}")});
}

void answer_models(ServerState& server, Call call) {
  Json::Array cards;
  for (const std::string& name : servable_names(server.model.names, server.model.profiles))
    cards.push_back(model_card(server.model, name));
  const Json list(Json::Object{{"object", Json("list")}, {"data", Json(std::move(cards))}});
  call.exchange->respond({.body = list.dump()});
}

void answer_one_model(ServerState& server, Call call) {
  const std::string id =
      percent_decoded(std::string_view(call.request.path).substr(call.route->path.size()));
  const std::vector<std::string> names = servable_names(server.model.names, server.model.profiles);
  if (std::ranges::find(names, id) != names.end())
    return call.exchange->respond({.body = model_card(server.model, id).dump()});
  call.exchange->respond(
      ApiError{.status = 404,
               .message = concat("the model \"", id.substr(0, 100), "\" is not served here"),
               .param = "model",
               .code = "model_not_found"}
          .response());
}

void answer_load(ServerState& server, Call call) {
  call.exchange->respond({.body = concat("{\"server_load\":", server.sequences.size(), "}")});
}

void answer_metrics(ServerState& server, Call call) {
  call.exchange->respond(
      {.content_type = "text/plain; version=0.0.4; charset=utf-8",
       .body = server.metrics.text(server.engine->stats(), server.model.names.front())});
}

void answer_tokenizer_info(ServerState& server, Call call) {
  call.exchange->respond(tokenizer_info(server.model));
}

void answer_embeddings(ServerState&, Call call) {
  call.exchange->respond(ApiError{
      .status = 501, .type = "not_supported", .message = "this model makes text, not embeddings"}
                             .response());
}

void answer_sleep(ServerState& server, Call call) {
  rest(server, Engine::Rest::sleeping, std::move(call.exchange));
}

void answer_wake_up(ServerState& server, Call call) {
  rest(server, Engine::Rest::awake, std::move(call.exchange));
}

void answer_is_sleeping(ServerState& server, Call call) {
  const bool sleeping = server.engine->resting() == Engine::Rest::sleeping;
  call.exchange->respond({.body = concat("{\"is_sleeping\":", sleeping ? "true" : "false", "}")});
}

void answer_text(ServerState& server, Call call) {
  const auto shared = std::make_shared<Call>(std::move(call));
  const bool queued = server.parser->post([&server, shared] {
    const TextRoute answer = text_route(shared->route->path);
    const auto response = std::make_shared<HttpResponse>(
        answer(shared->request.body, server.model, server.options.limits));
    server.http->post([response, shared] { shared->exchange->respond(std::move(*response)); });
  });
  if (!queued) shared->exchange->respond(too_busy(api_of(shared->request.path)));
}

void answer_generation(ServerState& server, Call call) {
  const Api api = api_of(call.route->path);
  if (server.signals > 0) {
    const ApiError error = ApiError::from({ErrorCode::cancelled, "the server is shutting down"});
    return call.exchange->respond(error_response(api, error));
  }
  const auto shared = std::make_shared<Call>(std::move(call));
  const bool queued = server.parser->post([&server, api, shared] {
    auto parsed = std::make_shared<ParsedRequest>(
        parse_generation_request(api, shared->request.body, server.model, server.options.limits));
    auto* sound = std::get_if<GenerationRequest>(parsed.get());
    std::optional<ApiError> error;
    if (sound != nullptr) error = apply_client(server.client_of(shared->request), *sound);
    if (error) *parsed = std::move(*error);
    sound = std::get_if<GenerationRequest>(parsed.get());
    const auto begin = [&server, api, parsed, shared] {
      if (const auto* refused = std::get_if<ApiError>(parsed.get())) {
        server.metrics.refuse(refused->status);
        return shared->exchange->respond(error_response(api, *refused));
      }
      server.start(std::move(std::get<GenerationRequest>(*parsed)), shared->exchange,
                   request_id_of(shared->request));
    };
    if (sound == nullptr || !sound->structure) return server.http->post(begin);
    const bool taken = server.compiler->post([&server, parsed, begin] {
      if (auto why = compile_structure(server.model, std::get<GenerationRequest>(*parsed)))
        *parsed = std::move(*why);
      server.http->post(begin);
    });
    if (taken) return;
    *parsed = ApiError::from({ErrorCode::no_space, "too many structures are being compiled"});
    server.http->post(begin);
  });
  if (!queued) shared->exchange->respond(too_busy(api));
}

}  // namespace nibble
