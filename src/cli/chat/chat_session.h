// ChatSession: a conversation with a model in the terminal: its commands, its answers. Answers go
// to standard output, all else to standard error.
#pragma once

#include <string>
#include <string_view>

#include "cli/chat/conversation.h"
#include "cli/chat/line_reader.h"
#include "cli/chat/local_session.h"
#include "cli/terminal.h"

namespace nibble {

class ChatSession {
 public:
  enum class Next : uint8_t { go_on, leave };
  enum class Shown : uint8_t { folded, whole };
  enum class Verbosity : uint8_t { quiet, verbose };
  struct Look {
    Shown thinking = Shown::whole;
    Verbosity verbosity = Verbosity::quiet;
  };

  ChatSession(LocalSession& session, Terminal& terminal, LineReader& reader,
              Conversation conversation, Look look);

  /// A line that begins with '/'.
  Result<Next> command(std::string_view line);
  /// Asks and shows the answer; Ctrl-C stops it, and what there is of it stays.
  Result<void> say(const std::string& question);

 private:
  struct Row;  // a row of the table of commands
  static std::span<const Row> rows();
  using Done = Result<void>;

  Done help(std::string_view);
  Done set(std::string_view words);
  Done set_system(std::string_view text);
  Done set_parameter(std::string_view words);
  Done set_thinking(std::string_view word);
  Done set_profile(std::string_view name);
  Done show(std::string_view);
  Done save(std::string_view file);
  Done load(std::string_view file);
  Done retry(std::string_view);
  Done undo(std::string_view);
  Done edit(std::string_view);
  Done clear(std::string_view);
  Done image(std::string_view file);
  Done think(std::string_view);
  Done no_think(std::string_view);
  Done stats(std::string_view);

  /// True if the server would take such a request; prints why not.
  bool acceptable(const Conversation& changed);
  /// Asks and shows the answer. False if the question was refused, which leaves the conversation as
  /// it was. Errors: nobody reads the answer any more, or the engine has failed.
  Result<bool> answered(const std::string& question, const std::vector<std::string>& images);
  Result<void> show_piece(const OutputEvent& event);
  void end_thinking();
  void tell(std::string_view line) { terminal_.err(concat(line, "\n")); }

  LocalSession& session_;
  Terminal& terminal_;
  LineReader& reader_;
  Conversation conversation_;
  std::vector<std::string> images_;  // data: URLs that go with the next question
  Look look_;
  bool thinking_ = false;        // on the screen, now
  double thinking_since_ = 0.0;  // seconds
  int32_t context_used_ = 0;     // tokens, after the last answer
};

/// Ctrl-C counts from now on instead of ending the program.
void install_chat_interrupts();

}  // namespace nibble
