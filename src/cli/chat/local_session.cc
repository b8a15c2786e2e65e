// Asks the engine and decodes, on the calling thread.
#include "cli/chat/local_session.h"

#include <chrono>
#include <cstdio>

#include "cli/serving/profiles_file.h"

namespace nibble {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPoll{50};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string_view reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "interrupted";
    case FinishReason::error:
      return "error";
    case FinishReason::deadline:
      return "deadline";
    case FinishReason::repetition:
      return "repetition";
  }
  return "";
}

}  // namespace

std::string LocalAnswer::stats() const {
  const double decode = total_seconds - first_token_seconds;
  const double rate = decode > 0.0 ? (finished.completion_tokens - 1) / decode : 0.0;
  char line[256];
  std::snprintf(line, sizeof line,
                "%d prompt tokens in %.0f ms, %d generated in %.0f ms (%.0f tokens/s), %s",
                finished.prompt_tokens, first_token_seconds * 1e3, finished.completion_tokens,
                decode * 1e3, rate, std::string(reason_name(finished.reason)).c_str());
  return line;
}

Result<std::unique_ptr<LocalSession>> LocalSession::open(const Arguments& arguments,
                                                         const std::filesystem::path& folder,
                                                         const std::optional<ImageFlags>& images,
                                                         Terminal& terminal) {
  Profiles profiles = TRY(read_profiles(arguments));
  TRY(check_profile(arguments, profiles));
  EngineSetup setup = TRY(set_up_engine(arguments, folder,
                                        {.drafts = DefaultDrafts::where_it_pays,
                                         .tower = images ? tower_for(*images) : TowerUse::unused,
                                         .terminal = &terminal}));
  terminal.err(setup.model.notice);
  ServedModel served = TRY(load_served_model(folder, setup.model.config));
  served.names = {folder.string()};
  served.profiles = std::move(profiles);
  served.context_max = setup.plan.context_max;
  std::string notice;
  if (images)
    served.images = TRY(make_image_intake(*images, setup.model.config, setup.plan.image_tokens_max,
                                          folder, notice));
  if (!served.images) terminal.err(notice);               // why they are refused
  served.completion_prompts = SpecialTokens::recognised;  // the user writes the prompt
  Engine::Options options{.settings = setup.settings(),
                          .sampleable = served.sampleable(),
                          .step_deadline = setup.step_deadline};
  auto engine =
      TRY(Engine::start(std::move(setup.model.backend), setup.model.config, std::move(options)));
  return std::make_unique<LocalSession>(std::move(served), std::move(engine));
}

Result<LocalAnswer> LocalSession::ask(Api api, const Json& body, const Show& show,
                                      const Stop& stop) {
  const auto start = Clock::now();
  OpenedBody opened = open_generation_request(api, body.dump(), served_);
  if (const auto* error = std::get_if<ApiError>(&opened))
    return Error{ErrorCode::invalid_argument, error->message};
  auto& open = std::get<OpenedRequest>(opened);
  open.request.abandoned = stop;
  auto parsed = finish_generation_request(std::move(open), served_);
  if (const auto* error = std::get_if<ApiError>(&parsed))
    return Error{ErrorCode::invalid_argument, error->message};
  const GenerationRequest& request = std::get<GenerationRequest>(parsed);
  SequenceRequest sequence = request.sequence(served_, 0, engine_->next_id());
  const uint64_t id = sequence.id;
  ChoiceDecoder decoder = request.decoder(served_, 0);
  TRY(engine_->submit(std::move(sequence)));

  LocalAnswer answer;
  Result<void> shown;
  bool ended = false;
  while (!ended) {
    if (stop() || !shown.ok()) engine_->cancel(id);
    for (const EngineEvent& event : engine_->take_events(kPoll)) {
      if (answer.first_token_seconds == 0.0) answer.first_token_seconds = seconds_since(start);
      if (const auto* fresh = std::get_if<NewTokens>(&event)) {
        for (const int32_t token : fresh->tokens) decoder.push(token);
      } else if (const auto* end = std::get_if<Finished>(&event)) {
        answer.finished = *end;
        ended = true;
        decoder.finish();
      }
    }
    for (const OutputEvent& event : decoder.take()) {
      answer.text.add(event);
      if (shown.ok()) shown = show(event);
    }
  }
  answer.total_seconds = seconds_since(start);
  answer.reasoning_tokens = decoder.reasoning_tokens();
  if (!shown.ok()) return shown.error();
  if (answer.finished.reason == FinishReason::error)
    return Error{ErrorCode::corrupt, answer.finished.error};
  return answer;
}

Result<Json> sampling_body(const Arguments& arguments) {
  Json body(Json::Object{});
  if (arguments.given("max-tokens"))
    body.set("max_tokens", Json(TRY(arguments.integer("max-tokens", 1, INT32_MAX))));
  if (arguments.given("temperature"))
    body.set("temperature", Json(TRY(arguments.number("temperature", 0.0, 100.0))));
  if (arguments.given("top-p")) body.set("top_p", Json(TRY(arguments.number("top-p", 0.0, 1.0))));
  if (arguments.given("top-k"))
    body.set("top_k", Json(TRY(arguments.integer("top-k", -1, INT32_MAX))));
  if (arguments.given("thinking-budget"))
    body.set("thinking_token_budget",
             Json(TRY(arguments.integer("thinking-budget", 0, INT32_MAX))));
  if (arguments.given("min-p")) body.set("min_p", Json(TRY(arguments.number("min-p", 0.0, 1.0))));
  if (arguments.given("seed"))
    body.set("seed", Json(TRY(arguments.integer("seed", INT64_MIN, INT64_MAX))));
  return body;
}

}  // namespace nibble
