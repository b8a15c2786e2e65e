// nibble run: one prompt, one answer; or token ids in, token ids out.
#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>

#include "base/file.h"
#include "cli/batch.h"
#include "cli/chat/image_file.h"
#include "cli/chat/local_session.h"
#include "cli/quantizing/quantize_first.h"
#include "cli/serving/client_setup.h"
#include "eval/score.h"

namespace nibble {
namespace {

constexpr uint64_t kIdsBytesMax = uint64_t{1} << 30;
constexpr size_t kPromptBytesMax = size_t{32} << 20;
constexpr int32_t kIdsSequencesMax = 16;  // sequences of --ids that are computed at once

constexpr auto kOwnOptions = std::to_array<Option>({
    {"raw", "", "", "continue the prompt as plain text; default: one turn of a chat"},
    {"system", "TEXT", "", "system message before the prompt"},
    {"image", "FILE", "", "an image before the prompt: PNG, JPEG, WebP, GIF; may stand often", "",
     OptionForm::repeated},
    {"video", "FILE", "",
     "a video before the prompt and behind the images: MP4, MOV, WebM, Matroska, AVI, GIF; needs "
     "ffmpeg; may stand often",
     "", OptionForm::repeated},
    {"think", "", "true", "let the model think first, where its template can"},
    {"show-thinking", "", "true", "print the thinking on standard error"},
    {"ids", "FILE", "", "JSON {\"ids\": [..]}: continue these ids; needs no tokenizer"},
    {"ids-out", "FILE", "", "with --ids: write the new ids here; default: standard output"},
    {"ignore-eos", "", "", "go on after end-of-text ids"},
    {"stats", "", "true", "token counts and speed on standard error"},
    kBatchOption,
    kBatchOutputOption,
    kBatchSequencesOption,
    kProfileOption,
});

constexpr auto kOptions =
    joined_options(kOwnOptions, kSamplingOptions, kClientOptions, kServingOptions, kTowerOptions,
                   kEngineOptions, kQuantizeFirstOptions, kModelOptions);

Result<std::string> read_prompt(const Arguments& arguments, const Terminal& terminal) {
  const bool named = arguments.positional_count() > 1 && arguments.positional(1) != "-";
  if (named) return arguments.positional(1);
  if (arguments.positional_count() < 2 && terminal.input_watcher() == Watcher::person)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "PROMPT", .expected = "the text to answer, or - to read it", .found = "nothing"});
  std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  if (text.size() > kPromptBytesMax)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "the prompt on standard input",
                       .expected = concat("at most ", kPromptBytesMax, " bytes"),
                       .found = concat(text.size())});
  while (text.ends_with('\n')) text.pop_back();
  if (text.empty())
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "PROMPT on standard input", .expected = "the text to answer", .found = "nothing"});
  return text;
}

Result<Json> request_body(const Arguments& arguments, const std::string& prompt,
                          const ImageFlags& flags) {
  Json body = TRY(sampling_body(arguments));
  const std::vector<std::string> images = TRY(
      image_urls_of(arguments.text("image").value_or(""), flags.intake.limits.encoded_bytes_max));
  const std::vector<std::string> videos = TRY(image_urls_of(
      arguments.text("video").value_or(""), flags.intake.videos.limits.encoded_bytes_max));
  if (const auto profile = arguments.text("profile")) body.set("model", Json(*profile));
  if (arguments.enabled("ignore-eos")) body.set("ignore_eos", Json(true));
  if (arguments.enabled("raw") && !(images.empty() && videos.empty()))
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat("--", images.empty() ? "video" : "image", " and --raw"),
                       .expected = "one of them",
                       .found = "both"});
  if (arguments.enabled("raw")) {
    body.set("prompt", Json(prompt));
    return body;
  }
  Json::Array messages;
  const auto message = [](std::string_view role, Json content) {
    return json_object({{"role", Json(role)}, {"content", std::move(content)}});
  };
  if (const auto system = arguments.text("system"))
    messages.push_back(message("system", Json(*system)));
  messages.push_back(message("user", user_content(prompt, images, videos)));
  body.set("messages", Json(std::move(messages)));
  if (arguments.given("think")) body.set("enable_thinking", Json(arguments.enabled("think")));
  return body;
}

Result<int> run_text(const Arguments& arguments, Terminal& terminal) {
  const std::string prompt = TRY(read_prompt(arguments, terminal));
  ImageFlags flags = TRY(read_image_flags(arguments));
  if (!arguments.text("video")) flags.intake.videos.videos_max = 0;  // no ffmpeg is looked for
  const Json body = TRY(request_body(arguments, prompt, flags));
  const auto folder = TRY(folder_to_load(arguments, terminal));
  const std::optional<ImageFlags> images =
      arguments.text("image") || arguments.text("video") ? std::optional(flags) : std::nullopt;
  const auto session = TRY(LocalSession::open(arguments, folder, images, terminal));
  const bool raw = arguments.enabled("raw");
  if (!raw && !session->served().chat_template)
    return make_error(ErrorCode::unsupported,
                      {.what = "this checkpoint has no chat template", .advice = "use --raw"});
  const bool dim = terminal.err_watcher() == Watcher::person;
  const bool show_thinking = arguments.enabled("show-thinking");
  bool thinking = false;
  const auto show = [&](const OutputEvent& event) -> Result<void> {
    const bool reasoning = event.kind == OutputEvent::Kind::reasoning;
    if (reasoning && show_thinking) {
      if (!thinking && dim) terminal.err("\x1b[2m");
      thinking = true;
      terminal.err(event.text);
    } else if (!reasoning) {
      if (std::exchange(thinking, false)) terminal.err(dim ? "\x1b[0m\n\n" : "\n\n");
      return terminal.out(event.text);
    }
    return {};
  };
  const auto asked = session->ask(raw ? Api::completions : Api::chat, body, show, interrupted);
  if (!asked.ok()) return end_of_verb("run", session->engine().failure(), asked.error(), terminal);
  const LocalAnswer& answer = asked.value();
  if (thinking) terminal.err(dim ? "\x1b[0m\n" : "\n");
  TRY(terminal.out("\n"));
  if (arguments.enabled("stats")) terminal.err(concat(answer.stats(), "\n"));
  return answer.finished.reason == FinishReason::cancelled ? kExitInterrupted : kExitOk;
}

struct Continuation {
  std::vector<int32_t> ids;
  FinishReason reason = FinishReason::stop;
  std::string error;
};

/// Submits everything and gathers; results in the order of the prompts.
Result<std::vector<Continuation>> continue_all(Engine& engine,
                                               std::vector<SequenceRequest> requests) {
  std::vector<Continuation> results(requests.size());
  std::map<uint64_t, size_t> index_of;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = engine.next_id();
    index_of[requests[i].id] = i;
    TRY(engine.submit(std::move(requests[i])));
  }
  size_t unfinished = results.size();
  while (unfinished > 0) {
    if (interrupted()) engine.shutdown(Shutdown::cancel_running);
    for (const EngineEvent& event : engine.take_events(std::chrono::milliseconds(50))) {
      if (const auto* fresh = std::get_if<NewTokens>(&event)) {
        auto& ids = results[index_of[fresh->id]].ids;
        ids.insert(ids.end(), fresh->tokens.begin(), fresh->tokens.end());
        continue;
      }
      const Finished& end = std::get<Finished>(event);
      Continuation& result = results[index_of[end.id]];
      result.reason = end.reason;
      result.error = end.error;
      if (end.stop_token >= 0) result.ids.push_back(end.stop_token);
      --unfinished;
    }
  }
  return results;
}

Result<std::vector<SequenceRequest>> requests_of(const Arguments& arguments,
                                                 const std::vector<std::vector<int32_t>>& prompts,
                                                 const EngineSetup& setup) {
  std::vector<SequenceRequest> requests;
  for (const auto& prompt : prompts) {
    SequenceRequest request{.prompt = prompt};
    const int64_t room = setup.plan.context_max - static_cast<int64_t>(prompt.size());
    request.max_tokens = static_cast<int32_t>(std::max<int64_t>(room, 1));
    if (arguments.given("max-tokens"))
      request.max_tokens = static_cast<int32_t>(TRY(arguments.integer("max-tokens", 1, INT32_MAX)));
    SamplingParams& s = request.sampling;
    s.temperature = 0.0;  // without generation_config.json: greedy unless told
    if (arguments.given("temperature"))
      s.temperature = TRY(arguments.number("temperature", 0.0, 100.0));
    if (arguments.given("top-p")) s.top_p = TRY(arguments.number("top-p", 0.0, 1.0));
    if (arguments.given("top-k"))
      s.top_k = static_cast<int32_t>(
          std::max<int64_t>(TRY(arguments.integer("top-k", -1, INT32_MAX)), 0));
    if (arguments.given("min-p")) s.min_p = TRY(arguments.number("min-p", 0.0, 1.0));
    if (arguments.given("seed"))
      s.seed = static_cast<uint64_t>(TRY(arguments.integer("seed", INT64_MIN, INT64_MAX)));
    if (!arguments.enabled("ignore-eos")) request.stop_ids = setup.model.config.stop_ids;
    requests.push_back(std::move(request));
  }
  return requests;
}

Result<int> run_ids(const Arguments& arguments, Terminal& terminal) {
  const std::string path = *arguments.text("ids");
  const std::string text = TRY(read_text_file(path, kIdsBytesMax));
  const Json json = TRY(parse_json(text, path));
  const auto folder = TRY(folder_to_load(arguments, terminal));
  EngineSetup setup = TRY(
      set_up_engine(arguments, folder, {.sequences_max = kIdsSequencesMax, .terminal = &terminal}));
  terminal.err(setup.model.notice);
  const auto prompts = TRY(parse_ids(json, setup.model.config.vocab_rows));
  auto requests = TRY(requests_of(arguments, prompts, setup));
  EngineSettings settings = setup.settings();
  settings.waiting_max = static_cast<int32_t>(prompts.size());
  const auto engine =
      TRY(Engine::start(std::move(setup.model.backend), setup.model.config,
                        {.settings = settings, .step_deadline = setup.step_deadline}));
  const auto results = continue_all(*engine, std::move(requests));
  if (!results.ok()) return end_of_verb("run", engine->failure(), results.error(), terminal);
  Json::Array lists;
  for (const Continuation& result : results.value()) {
    if (result.reason == FinishReason::error)
      return end_of_verb("run", engine->failure(), Error{ErrorCode::corrupt, result.error},
                         terminal);
    if (result.reason == FinishReason::cancelled) return kExitInterrupted;
    Json::Array ids;
    for (const int32_t id : result.ids) ids.push_back(Json(id));
    lists.push_back(Json(std::move(ids)));
  }
  const Json* given = json.find("ids");
  const bool one = given != nullptr && !given->as_array().front().is_array();
  const Json out(Json::Object{{"ids", one ? lists.front() : Json(lists)}});
  if (const auto out_path = arguments.text("ids-out"))
    TRY(write_file_atomically(*out_path, out.dump() + "\n"));
  else
    TRY(terminal.out(out.dump() + "\n"));
  return kExitOk;
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  install_interrupt_flag();
  if (arguments.given("output") && !arguments.given("batch"))
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--output", .expected = "--batch FILE beside it"});
  for (const char* medium : {"image", "video"})
    for (const char* other : {"batch", "ids"})
      if (arguments.given(medium) && arguments.given(other))
        return make_error(ErrorCode::invalid_argument,
                          {.what = concat("--", medium, " and --", other),
                           .expected = "one of them",
                           .found = "both"});
  if (arguments.given("batch") && arguments.given("ids"))
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--ids and --batch", .expected = "one of them", .found = "both"});
  if (arguments.given("batch")) return run_batch(arguments, terminal);
  if (!arguments.given("ids")) return run_text(arguments, terminal);
  if (arguments.positional_count() > 1)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--ids and PROMPT", .expected = "one of them", .found = "both"});
  return run_ids(arguments, terminal);
}

}  // namespace

const Verb kRunVerb = {.name = "run",
                       .positionals = "DIR [PROMPT]",
                       .summary = "Answers one prompt (- reads it from standard input)",
                       .options = kOptions,
                       .run = run};

}  // namespace nibble
