// libedit where a person types, std::getline elsewhere; libedit is seen by this file alone.
#include "cli/line_reader.h"

#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iostream>

namespace nibble {

namespace {
constexpr int kHistoryLines = 1000;
constexpr std::string_view kBlock = "\"\"\"";
}  // namespace

struct LineReader::Editor {
  EditLine* line = nullptr;
  ::History* history = nullptr;
  std::filesystem::path file;
  std::string prompt;
  std::string typed;  // before the next line is read
};

LineReader::LineReader(const Terminal& terminal, std::filesystem::path history_file) {
  const bool person =
      terminal.input_watcher() == Watcher::person && terminal.err_watcher() == Watcher::person;
  if (!person) return;
  editor_ = std::make_unique<Editor>();
  editor_->file = std::move(history_file);
  // The prompt and what is typed go to standard error: standard output is for answers.
  editor_->line = ::el_init("nibble", stdin, stderr, stderr);
  editor_->history = ::history_init();
  HistEvent event;
  ::history(editor_->history, &event, H_SETSIZE, kHistoryLines);
  ::history(editor_->history, &event, H_SETUNIQUE, 1);
  if (!editor_->file.empty()) ::history(editor_->history, &event, H_LOAD, editor_->file.c_str());
  ::el_set(editor_->line, EL_CLIENTDATA, editor_.get());
  ::el_set(
      editor_->line, EL_PROMPT, +[](EditLine* line) -> char* {
        void* data = nullptr;
        ::el_get(line, EL_CLIENTDATA, &data);
        return static_cast<Editor*>(data)->prompt.data();
      });
  ::el_set(editor_->line, EL_EDITOR, "emacs");
  ::el_set(editor_->line, EL_HIST, ::history, editor_->history);
  ::el_set(editor_->line, EL_SIGNAL, 0);
}

LineReader::~LineReader() {
  if (!editor_) return;
  if (!editor_->file.empty()) {
    std::error_code ignored;
    std::filesystem::create_directories(editor_->file.parent_path(), ignored);
    HistEvent event;
    const mode_t before = ::umask(0077);  // what was typed is nobody else's business
    ::history(editor_->history, &event, H_SAVE, editor_->file.c_str());
    ::umask(before);
  }
  ::history_end(editor_->history);
  ::el_end(editor_->line);
}

LineReader::Ending LineReader::read_one(std::string_view prompt, std::string& line) {
  if (!editor_) {
    line.clear();
    return std::getline(std::cin, line) ? Ending::line : Ending::end_of_input;
  }
  editor_->prompt = prompt;
  int length = 0;
  if (!editor_->typed.empty()) ::el_push(editor_->line, editor_->typed.c_str());
  editor_->typed.clear();
  errno = 0;
  const char* text = ::el_gets(editor_->line, &length);
  if (text == nullptr || length <= 0)
    return errno == EINTR || length < 0 ? Ending::interrupted : Ending::end_of_input;
  line.assign(text, static_cast<size_t>(length));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  HistEvent event;
  if (!line.empty()) ::history(editor_->history, &event, H_ENTER, line.c_str());
  return Ending::line;
}

void LineReader::begin_with(std::string_view text) {
  if (!editor_) return;
  editor_->typed = text;
  // A line break would end the line, other control characters are commands of the editor.
  std::ranges::replace_if(
      editor_->typed, [](char c) { return (c >= 0 && c < ' ') || c == 127; }, ' ');
}

LineReader::Ending LineReader::read(std::string_view prompt, std::string& line) {
  Ending ending = read_one(prompt, line);
  if (ending != Ending::line || !line.starts_with(kBlock)) return ending;
  std::string block = line.substr(kBlock.size());
  while (!block.ends_with(kBlock)) {
    ending = read_one("... ", line);
    if (ending != Ending::line) return ending;
    block += "\n" + line;
  }
  line = block.substr(0, block.size() - kBlock.size());
  if (line.starts_with('\n')) line.erase(0, 1);
  return Ending::line;
}

}  // namespace nibble
