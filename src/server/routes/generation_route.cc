// A request on its way to the engine: read on the parser's thread, its structure compiled on the
// compiler's, started on the server's.
#include <atomic>

#include "server/answer/answer_writer.h"
#include "server/clients/permissions.h"
#include "server/routes/route_handlers.h"
#include "server/server_state.h"

namespace nibble {

namespace {

/// One request and what became of it so far.
struct Intake {
  Api api = Api::chat;
  Call call;
  std::optional<OpenedRequest> opened;  // until it is read
  std::optional<StoredInput> stored;
  ParsedRequest parsed;
  std::atomic<bool> client_gone = false;

  GenerationRequest* sound() { return std::get_if<GenerationRequest>(&parsed); }
};
using IntakePointer = std::shared_ptr<Intake>;

/// Runs on a thread of the compiler.
void compile(ServerState& server, Intake& intake) {
  if (intake.client_gone) return;  // while it waited
  if (auto why = compile_structure(server.model, *intake.sound(),
                                   [&intake] { return intake.client_gone.load(); }))
    intake.parsed = *std::move(why);
}

/// The body as far as that is quick and, with a store, of the response that it continues.
void open(ServerState& server, Intake& intake) {
  std::string body = std::move(intake.call.request.body);
  if (intake.api == Api::responses && server.responses.enabled()) {
    auto continued = continue_response(server.responses, server.client_of(intake.call).tenant,
                                       std::move(body), server.options.limits.json_depth_max);
    if (auto* error = std::get_if<ApiError>(&continued)) {
      intake.parsed = std::move(*error);
      return;
    }
    auto& whole = std::get<ContinuedBody>(continued);
    body = std::move(whole.body);
    intake.stored = std::move(whole.stored);
  }
  auto opened = open_generation_request(intake.api, body, server.model, server.options.limits);
  if (auto* error = std::get_if<ApiError>(&opened))
    intake.parsed = std::move(*error);
  else
    intake.opened = std::move(std::get<OpenedRequest>(opened));
}

/// The rest of it.
ParsedRequest read(ServerState& server, Intake& intake) {
  OpenedRequest opened = *std::exchange(intake.opened, std::nullopt);
  opened.judge = [&server, &call = intake.call](GenerationRequest& request) {
    auto error = apply_client(server.client_of(call), request);
    if (!error && call.record->key) error = forbidden(*call.record->key, request);
    return error;
  };
  ParsedRequest parsed =
      finish_generation_request(std::move(opened), server.model, server.options.limits);
  auto* sound = std::get_if<GenerationRequest>(&parsed);
  if (sound == nullptr) return parsed;
  if (intake.stored) {
    sound->echoed.set("store", Json(true));
    if (!intake.stored->previous.empty())
      sound->echoed.set("previous_response_id", Json(intake.stored->previous));
  }
  sound->stored_input = std::move(intake.stored);
  return parsed;
}

/// The prompt's tokens, out of what its key may have.
std::optional<ApiError> over_tokens(ServerState& server, Intake& intake) {
  if (intake.sound() == nullptr || !intake.call.record->key) return std::nullopt;
  int64_t tokens = 0;
  for (const auto& prompt : intake.sound()->prompts) tokens += static_cast<int64_t>(prompt.size());
  return server.quotas.take_tokens(*intake.call.record->key, tokens,
                                   std::chrono::steady_clock::now());
}

/// Runs on the server's thread.
void begin(ServerState& server, const IntakePointer& intake) {
  if (intake->client_gone) return;  // its log line is written already
  if (auto over = over_tokens(server, *intake)) intake->parsed = *std::move(over);
  if (const auto* refused = std::get_if<ApiError>(&intake->parsed)) {
    server.metrics.refuse(refused->status);
    return intake->call.exchange->respond(error_response(intake->api, *refused));
  }
  server.start(std::move(*intake->sound()), intake->call);
}

/// Runs on the server's thread; a prompt that a filter refuses never reaches the engine.
void judge_prompt(ServerState& server, const IntakePointer& intake) {
  GenerationRequest* sound = intake->sound();
  if (sound == nullptr || sound->filters.empty()) return begin(server, intake);
  server.filters->judge(
      sound->filters, {.place = FilterPlace::prompt, .text = std::exchange(sound->prompt_text, {})},
      [&server, intake](FilterVerdict verdict) {
        if (verdict == FilterVerdict::hit)
          intake->parsed =
              ApiError{.message = "a filter of this server does not let the prompt pass",
                       .code = "content_filter"};
        if (verdict == FilterVerdict::failed)
          intake->parsed = ApiError{.status = 503,
                                    .type = "service_unavailable",
                                    .message = "a filter of this server did not answer",
                                    .code = "filter_failed"};
        begin(server, intake);
      });
}

void watch_client(ServerState& server, const IntakePointer& intake) {
  server.http->post(
      [intake] { intake->call.exchange->on_gone([intake] { intake->client_gone = true; }); });
}

/// Runs on the parser's thread, or on one that reads images.
void take_in(ServerState& server, const IntakePointer& intake) {
  if (intake->opened) intake->parsed = read(server, *intake);
  intake->call.request.body_share.reset();  // the body is read
  if (GenerationRequest* sound = intake->sound(); sound != nullptr) {
    sound->filters = server.filters_for(*intake->call.record, sound->profile);
    for (size_t i = 0; i < sound->prompts.size() && !sound->filters.empty(); ++i)
      sound->prompt_text +=
          server.model.tokenizer.decode(sound->prompts[i], SkipSpecial::yes) + "\n";
  }
  const auto next = [&server, intake] { judge_prompt(server, intake); };
  if (intake->sound() == nullptr || !intake->sound()->structure) return server.http->post(next);
  watch_client(server, intake);
  const bool taken = server.compiler->post(intake->sound()->turn_tenant, [&server, intake, next] {
    compile(server, *intake);
    server.http->post(next);
  });
  if (taken) return;
  intake->parsed = ApiError::from({ErrorCode::no_space, "too many structures are being compiled"});
  server.http->post(next);
}

/// Runs on the parser's thread. Images and videos take seconds: they are read elsewhere, and text
/// goes on.
void open_and_take_in(ServerState& server, const IntakePointer& intake) {
  open(server, *intake);
  if (!intake->opened || !intake->opened->has_media()) return take_in(server, intake);
  watch_client(server, intake);
  intake->opened->request.abandoned = [&gone = intake->client_gone] { return gone.load(); };
  const uint64_t client = server.client_of(intake->call).turn_tenant;
  const bool taken = server.image_readers->post(client, [&server, intake] {
    if (!intake->client_gone) take_in(server, intake);
  });
  if (taken) return;
  intake->opened.reset();
  intake->parsed =
      ApiError::from({ErrorCode::no_space,
                      "too many requests with images or videos are waiting; try again later"});
  server.http->post([&server, intake] { judge_prompt(server, intake); });
}

}  // namespace

void answer_generation(ServerState& server, Call call) {
  const Api api = call.route->api;
  if (server.signals > 0) {
    const ApiError error = ApiError::from({ErrorCode::cancelled, "the server is shutting down"});
    return call.exchange->respond(error_response(api, error));
  }
  const auto intake = std::make_shared<Intake>();
  intake->api = api;
  intake->call = std::move(call);
  const bool queued = server.parser->post([&server, intake] { open_and_take_in(server, intake); });
  if (!queued) intake->call.exchange->respond(too_busy(api));
}

}  // namespace nibble
