// The handlers of routes.cc: small ones answer at once, long ones go to another thread.
#include "server/routes/route_handlers.h"

#include <algorithm>
#include <atomic>
#include <charconv>

#include "server/answer/answer_writer.h"
#include "server/clients/permissions.h"
#include "server/request/profiles.h"
#include "server/server_state.h"

namespace nibble {

namespace {

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

/// Answers when it is done; 409 while requests run.
void rest(ServerState& server, Engine::Rest wanted, std::shared_ptr<HttpExchange> exchange) {
  server.engine->rest(wanted, [&server, exchange](const Result<void>& outcome) {
    const auto response = std::make_shared<HttpResponse>(HttpResponse{.body = "{}"});
    if (!outcome.ok())
      *response = ApiError{.status = 409, .message = outcome.error().message}.response();
    server.http->post([response, exchange] { exchange->respond(std::move(*response)); });
  });
}

/// True if requests of the caller may ask for the model by this name.
bool is_served(const ServedModel& model, const std::string& name, const RequestRecord& record) {
  const Profile* profile = profile_of(name, model.names, model.profiles);
  const bool own = std::ranges::find(model.names, name) != model.names.end();
  if (profile == nullptr && !own) return false;
  if (!record.key) return true;
  if (profile == nullptr) profile = model.profiles.standing();
  return may_use(*record.key, profile != nullptr ? profile->name : "") == Permission::granted;
}

Json model_card(const ServedModel& model, std::string_view name) {
  Json::Array modalities = {Json("text")};
  if (model.images && model.images->options().images_max > 0) modalities.push_back(Json("image"));
  if (model.images && model.images->options().videos.videos_max > 0)
    modalities.push_back(Json("video"));
  return json_object({{"id", Json(name)},
                      {"object", Json("model")},
                      {"created", Json(model.created)},
                      {"owned_by", Json("nibble")},
                      {"root", Json(model.names.front())},
                      {"max_model_len", Json(model.context_max)},
                      {"input_modalities", Json(std::move(modalities))}});
}

}  // namespace

HttpResponse too_busy(Api api) {
  return error_response(
      api, ApiError::from({ErrorCode::no_space, "too many requests are waiting; try again later"}));
}

void answer_health(ServerState& server, Call call) {
  if (server.signals > 0 && server.engine->failure().ok())
    return call.exchange->respond({.status = 503, .body = R"({"status":"draining"})"});
  answer_live(server, std::move(call));
}

void answer_live(ServerState& server, Call call) {
  if (server.engine->failure().ok()) return call.exchange->respond({.body = R"({"status":"ok"})"});
  call.exchange->respond({.status = 503, .body = R"({"status":"failed"})"});
}

void answer_version(ServerState&, Call call) {
  call.exchange->respond({.body = concat("{\"version\":\"", NIBBLE_VERSION, "\"}")});
}

void answer_models(ServerState& server, Call call) {
  Json::Array cards;
  const ServedModel& model = server.model;
  for (const std::string& name :
       listed_names(model.names, model.profiles, server.options.list_profiles))
    if (is_served(model, name, *call.record)) cards.push_back(model_card(model, name));
  const Json list = json_object({{"object", Json("list")}, {"data", Json(std::move(cards))}});
  call.exchange->respond({.body = list.dump()});
}

void answer_one_model(ServerState& server, Call call) {
  const std::string id =
      percent_decoded(std::string_view(call.request.path).substr(call.route->path.size()));
  const ServedModel& model = server.model;
  const std::string name = shown_name(id, model.names, model.unlisted_names);
  if (is_served(model, name, *call.record))
    return call.exchange->respond({.body = model_card(model, name).dump()});
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
       .body = server.metrics.text(
                   server.engine->stats(), server.model.names.front(),
                   server.model.images ? server.model.images->counts() : ImageIntake::Counts{}) +
               server.filters->metrics_text()});
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

/// Images that have to be fetched and videos would hold the parser up: they go to the threads that
/// read images.
void answer_text_by(OpenText open, ServerState& server, Call call) {
  const auto shared = std::make_shared<Call>(std::move(call));
  const auto respond = [&server, shared](HttpResponse response) {
    shared->request.body_share.reset();
    const auto answer = std::make_shared<HttpResponse>(std::move(response));
    server.http->post([answer, shared] { shared->exchange->respond(std::move(*answer)); });
  };
  const auto task = [&server, shared, open, respond] {
    const auto opened = std::make_shared<OpenedText>(
        open(shared->route->api, shared->request.body, server.model, server.options.limits));
    const auto finish = [&server, opened, respond] {
      respond(finish_text(std::move(*opened), server.model, server.options.limits));
    };
    const bool fetches = opened->has_media() && server.model.images->options().fetcher;
    if (!fetches && !opened->has_videos()) return finish();
    const auto gone = std::make_shared<std::atomic<bool>>(false);
    opened->request->request.abandoned = [gone] { return gone->load(); };
    server.http->post([shared, gone] { shared->exchange->on_gone([gone] { *gone = true; }); });
    if (!server.image_readers->post(server.client_of(*shared).turn_tenant, finish))
      respond(too_busy(shared->route->api));
  };
  if (!server.parser->post(task)) shared->exchange->respond(too_busy(shared->route->api));
}

}  // namespace nibble
