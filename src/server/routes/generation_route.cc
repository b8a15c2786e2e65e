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

/// Reads the body and, with a store, the response that it continues.
ParsedRequest read(ServerState& server, Api api, Call& call) {
  HttpRequest& request = call.request;
  const ClientFacts client = server.client_of(call);
  std::optional<StoredInput> stored;
  if (api == Api::responses && server.responses.enabled()) {
    auto continued = continue_response(server.responses, client.tenant, std::move(request.body),
                                       server.options.limits.json_depth_max);
    if (auto* error = std::get_if<ApiError>(&continued)) return std::move(*error);
    auto& whole = std::get<ContinuedBody>(continued);
    request.body = std::move(whole.body);
    stored = std::move(whole.stored);
  }
  ParsedRequest parsed =
      parse_generation_request(api, request.body, server.model, server.options.limits);
  auto* sound = std::get_if<GenerationRequest>(&parsed);
  if (sound == nullptr) return parsed;
  if (auto error = apply_client(client, *sound)) return *std::move(error);
  if (call.record->key)
    if (auto error = forbidden(*call.record->key, *sound)) return *std::move(error);
  if (stored) {
    sound->echoed.set("store", Json(true));
    if (!stored->previous.empty())
      sound->echoed.set("previous_response_id", Json(stored->previous));
  }
  sound->stored_input = std::move(stored);
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

/// Runs on the parser's thread.
void take_in(ServerState& server, const IntakePointer& intake) {
  intake->parsed = read(server, intake->api, intake->call);
  if (GenerationRequest* sound = intake->sound(); sound != nullptr) {
    sound->filters = server.filters_for(*intake->call.record, sound->profile);
    for (size_t i = 0; i < sound->prompts.size() && !sound->filters.empty(); ++i)
      sound->prompt_text +=
          server.model.tokenizer.decode(sound->prompts[i], SkipSpecial::yes) + "\n";
  }
  const auto next = [&server, intake] { judge_prompt(server, intake); };
  if (intake->sound() == nullptr || !intake->sound()->structure) return server.http->post(next);
  server.http->post(
      [intake] { intake->call.exchange->on_gone([intake] { intake->client_gone = true; }); });
  const bool taken = server.compiler->post(intake->sound()->turn_tenant, [&server, intake, next] {
    compile(server, *intake);
    server.http->post(next);
  });
  if (taken) return;
  intake->parsed = ApiError::from({ErrorCode::no_space, "too many structures are being compiled"});
  server.http->post(next);
}

}  // namespace

void answer_generation(ServerState& server, Call call) {
  const Api api = call.route->api;
  if (server.signals > 0) {
    const ApiError error = ApiError::from({ErrorCode::cancelled, "the server is shutting down"});
    return call.exchange->respond(error_response(api, error));
  }
  const auto intake = std::make_shared<Intake>(api, std::move(call), ApiError{});
  const bool queued = server.parser->post([&server, intake] { take_in(server, intake); });
  if (!queued) intake->call.exchange->respond(too_busy(api));
}

}  // namespace nibble
