// The questions and answers of a chat; its commands are in chat_commands.cc.
#include "cli/chat/chat_session.h"

#include <chrono>
#include <csignal>

namespace nibble {

namespace {

volatile std::sig_atomic_t interrupts = 0;  // written by the signal handler

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[0m";

}  // namespace

void install_chat_interrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupts = interrupts + 1; };  // reading a line is interrupted
  ::sigaction(SIGINT, &action, nullptr);
}

ChatSession::ChatSession(LocalSession& session, Terminal& terminal, LineReader& reader,
                         Conversation conversation, Look look)
    : session_(session),
      terminal_(terminal),
      reader_(reader),
      conversation_(std::move(conversation)),
      look_(look) {}

void ChatSession::end_thinking() {
  if (!std::exchange(thinking_, false)) return;
  const bool person = terminal_.err_watcher() == Watcher::person;
  if (look_.thinking == Shown::whole)
    return terminal_.err(person ? concat(kPlain, "\n\n") : "\n\n");
  const auto tenths = static_cast<int64_t>((now_seconds() - thinking_since_) * 10.0);
  const std::string fold = concat("[thought for ", tenths / 10, ".", tenths % 10, " s]");
  terminal_.err(person ? concat("\r\x1b[2K", kDim, fold, kPlain, "\n") : fold + "\n");
}

Result<void> ChatSession::show_piece(const OutputEvent& event) {
  if (event.kind != OutputEvent::Kind::reasoning) {
    end_thinking();
    return terminal_.out(event.text);
  }
  const bool person = terminal_.err_watcher() == Watcher::person;
  if (!std::exchange(thinking_, true)) {
    thinking_since_ = now_seconds();
    if (person) terminal_.err(kDim);
    if (person && look_.thinking == Shown::folded) terminal_.err(concat("[thinking]", kPlain));
  }
  if (look_.thinking == Shown::whole) terminal_.err(event.text);
  return {};
}

Result<void> ChatSession::say(const std::string& question) {
  std::vector<std::string> images = std::exchange(images_, {});
  if (TRY(answered(question, images))) return {};
  images_ = std::move(images);
  if (!images_.empty())
    tell("its images go with the next question; /image without FILE forgets them");
  return {};
}

Result<bool> ChatSession::answered(const std::string& question,
                                   const std::vector<std::string>& images) {
  interrupts = 0;
  const auto answer = session_.ask(
      Api::chat, conversation_.request(question, images),
      [&](const OutputEvent& event) { return show_piece(event); }, [] { return interrupts != 0; });
  end_thinking();
  interrupts = 0;
  if (!answer.ok()) {
    const bool nobody_reads = answer.error().code == ErrorCode::io;
    if (nobody_reads || !session_.engine().failure().ok()) return answer.error();
    tell(answer.error().message);  // the conversation goes on without it
    return false;
  }
  TRY(terminal_.out("\n"));
  const LocalAnswer& result = answer.value();
  conversation_.turns.push_back({.question = question,
                                 .images = images,
                                 .reasoning = result.text.reasoning,
                                 .answer = result.text.content});
  context_used_ = result.finished.prompt_tokens + result.finished.completion_tokens;
  if (result.finished.reason == FinishReason::cancelled) tell("[stopped]");
  if (result.finished.reason == FinishReason::length) tell("[cut off: no room for more]");
  if (look_.verbosity == Verbosity::verbose) tell(concat("[", result.stats(), "]"));
  return true;
}

}  // namespace nibble
