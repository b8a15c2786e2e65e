// nibble chat: a conversation in the terminal. Answers on standard output, all else on standard
// error. Ctrl-C stops the answer; twice at the prompt, or /bye, leaves.
#include <csignal>
#include <cstdlib>

#include "cli/line_reader.h"
#include "cli/local_session.h"
#include "cli/speculation.h"

namespace nibble {
namespace {

constexpr Option kOptions[] = {
    {"system", "TEXT", "", "system message of the conversation"},
    {"think", "", "true", "let the model think first, where its template can"},
    {"show-thinking", "", "true", "show the thinking, dimmed"},
    kMaxTokensOption,
    kTemperatureOption,
    kTopPOption,
    kTopKOption,
    kMinPOption,
    kSeedOption,
    kThinkingBudgetOption,
    {"history", "", "true", "keep typed lines for the next session"},
    {"stats", "", "", "token counts and speed after each answer"},
    kMaxModelLenOption,
    kKvCacheBytesOption,
    kMemoryShareOption,
    kMaxBatchedTokensOption,
    kSpeculativeOption,
    kBackendOption,
    kActivationsOption,
    kKvCacheOption,
    kLoadFormatOption,
    kCardLimitOption,
    kThreadsOption,
    kIsaOption,
};

constexpr std::string_view kHelp =
    "  /system TEXT   set the system message and start afresh; without TEXT remove it\n"
    "  /think         let the model think first\n"
    "  /nothink       answer at once\n"
    "  /set KEY VALUE temperature, top_p, top_k, min_p, seed, max_tokens, presence_penalty, ...\n"
    "  /clear         forget the conversation\n"
    "  /stats         show token counts and speed, or stop showing them\n"
    "  /bye           leave (so do Ctrl-D, and Ctrl-C twice)\n"
    "  \"\"\"            begins and ends a message of several lines\n"
    "Ctrl-C stops an answer.\n";

volatile std::sig_atomic_t interrupts = 0;  // written by the signal handler

void install_handler() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupts = interrupts + 1; };  // reading a line is interrupted
  ::sigaction(SIGINT, &action, nullptr);
}

std::filesystem::path history_file() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/')
    return std::filesystem::path(state) / "nibble" / "history";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::filesystem::path(home) / ".local" / "state" / "nibble" / "history";
  return {};
}

Json message(std::string_view role, std::string_view content) {
  return Json(Json::Object{{"role", Json(role)}, {"content", Json(content)}});
}

enum class Next : uint8_t { go_on, leave };

class Conversation {
 public:
  Conversation(LocalSession& session, Terminal& terminal, Json body)
      : session_(session), terminal_(terminal), body_(std::move(body)) {}

  std::string system;
  bool show_thinking = true;
  bool show_stats = false;
  void set_thinking(bool on) { body_.set("enable_thinking", Json(on)); }

  /// A line that begins with '/'.
  Next command(std::string_view line);
  Result<void> say(const std::string& text);

 private:
  void set(std::string_view rest);
  Result<void> show(const OutputEvent& event);
  void end_thinking();

  LocalSession& session_;
  Terminal& terminal_;
  Json body_;  // sampling and template fields
  Json::Array turns_;
  bool thinking_ = false;
};

Next Conversation::command(std::string_view line) {
  const size_t space = line.find(' ');
  const std::string_view name = line.substr(0, space);
  const std::string_view rest =
      space == std::string_view::npos ? std::string_view{} : line.substr(space + 1);
  if (name == "/bye" || name == "/exit" || name == "/quit") return Next::leave;
  if (name == "/help" || name == "/?") {
    terminal_.err(kHelp);
  } else if (name == "/clear") {
    turns_.clear();
    terminal_.err("forgotten\n");
  } else if (name == "/system") {
    system = rest;
    turns_.clear();
    terminal_.err(rest.empty() ? "no system message\n" : "system message set\n");
  } else if (name == "/think" || name == "/nothink") {
    set_thinking(name == "/think");
    terminal_.err(concat("thinking ", name == "/think" ? "on" : "off", "\n"));
  } else if (name == "/stats") {
    show_stats = !show_stats;
    terminal_.err(concat("statistics ", show_stats ? "on" : "off", "\n"));
  } else if (name == "/set") {
    set(rest);
  } else {
    terminal_.err(concat("unknown command ", name, "; /help lists them\n"));
  }
  return Next::go_on;
}

void Conversation::set(std::string_view rest) {
  const size_t space = rest.find(' ');
  if (space == std::string_view::npos) return terminal_.err("/set KEY VALUE\n");
  const std::string_view key = rest.substr(0, space);
  const auto value = parse_json(rest.substr(space + 1), "the value");
  if (!value.ok() || !value.value().is_number())
    return terminal_.err(concat("/set ", key, ": expected a number\n"));
  Json changed = body_;
  changed.set(key, value.value());
  changed.set("prompt", Json("x"));
  // The server's own checks, on a request that is never run.
  const auto parsed = parse_generation_request(Api::completions, changed.dump(), session_.served());
  if (const auto* error = std::get_if<ApiError>(&parsed))
    return terminal_.err(error->message + "\n");
  body_.set(key, value.value());
  terminal_.err(concat(key, " = ", value.value().dump(), "\n"));
}

void Conversation::end_thinking() {
  if (!std::exchange(thinking_, false)) return;
  terminal_.err(terminal_.err_watcher() == Watcher::person ? "\x1b[0m\n\n" : "\n\n");
}

Result<void> Conversation::show(const OutputEvent& event) {
  if (event.kind != OutputEvent::Kind::reasoning) {
    end_thinking();
    return terminal_.out(event.text);
  }
  if (!show_thinking) return {};
  if (!thinking_ && terminal_.err_watcher() == Watcher::person) terminal_.err("\x1b[2m");
  thinking_ = true;
  terminal_.err(event.text);
  return {};
}

Result<void> Conversation::say(const std::string& text) {
  Json::Array messages;
  if (!system.empty()) messages.push_back(message("system", system));
  messages.insert(messages.end(), turns_.begin(), turns_.end());
  messages.push_back(message("user", text));
  Json body = body_;
  body.set("messages", Json(std::move(messages)));
  interrupts = 0;
  const auto answer = session_.ask(
      Api::chat, body, [&](const OutputEvent& event) { return show(event); },
      [] { return interrupts != 0; });
  end_thinking();
  interrupts = 0;
  if (!answer.ok()) {
    terminal_.err(concat(answer.error().message, "\n"));  // the conversation goes on without it
    return {};
  }
  TRY(terminal_.out("\n"));
  const LocalAnswer& result = answer.value();
  turns_.push_back(message("user", text));
  Json reply = message("assistant", result.text.content);
  if (!result.text.reasoning.empty()) reply.set("reasoning_content", Json(result.text.reasoning));
  turns_.push_back(std::move(reply));
  if (result.finished.reason == FinishReason::cancelled) terminal_.err("[stopped]\n");
  if (show_stats) terminal_.err(concat("[", result.stats(), "]\n"));
  return {};
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const Json body = TRY(sampling_body(arguments));
  const auto session = TRY(LocalSession::open(arguments, arguments.positional(0)));
  if (!session->served().chat_template)
    return make_error(ErrorCode::unsupported, {.what = "this checkpoint has no chat template",
                                               .advice = "use `nibble run --raw`"});
  Conversation conversation(*session, terminal, body);
  conversation.system = arguments.text("system").value_or("");
  conversation.show_thinking = arguments.enabled("show-thinking");
  conversation.show_stats = arguments.enabled("stats");
  if (arguments.given("think")) conversation.set_thinking(arguments.enabled("think"));
  install_handler();
  LineReader reader(terminal, arguments.enabled("history") ? history_file() : "");
  const bool person = terminal.input_watcher() == Watcher::person;
  if (person) terminal.err("/help lists the commands, /bye leaves.\n");

  std::string line;
  bool interrupted_before = false;
  while (true) {
    const auto ending = reader.read("> ", line);
    if (ending == LineReader::Ending::interrupted) {
      terminal.err("\n");
      if (interrupted_before) return kExitOk;
      interrupted_before = true;
      terminal.err("Ctrl-C again, or /bye, leaves.\n");
      continue;
    }
    interrupted_before = false;
    if (ending == LineReader::Ending::end_of_input) {
      if (person) terminal.err("\n");
      return kExitOk;
    }
    if (line.empty()) continue;
    if (line[0] == '/') {
      if (conversation.command(line) == Next::leave) return kExitOk;
    } else {
      TRY(conversation.say(line));
    }
  }
}

}  // namespace

const Verb kChatVerb = {.name = "chat",
                        .positionals = "DIR",
                        .summary = "Holds a conversation in the terminal",
                        .options = kOptions,
                        .run = run};

}  // namespace nibble
