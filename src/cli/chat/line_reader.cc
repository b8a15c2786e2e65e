// Lines with editing where a person types, std::getline elsewhere. The prompt and what is typed go
// to standard error: standard output is for answers.
#include "cli/chat/line_reader.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <utility>

#include "cli/chat/edited_line.h"
#include "cli/chat/line_history.h"
#include "cli/chat/typed_keys.h"

namespace nibble {

namespace {

constexpr std::string_view kBlock = "\"\"\"";
constexpr int kMomentMs = 50;  // between the bytes of one key
constexpr std::string_view kPasteMarksOn = "\x1b[?2004h";
constexpr std::string_view kPasteMarksOff = "\x1b[?2004l";

using Kind = Key::Kind;

KeyReader::Input read_byte(KeyReader::Wait wait) {
  using Input = KeyReader::Input;
  if (wait == KeyReader::Wait::moment) {
    pollfd ready{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, kMomentMs) <= 0) return {};
  }
  char byte = 0;
  const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
  if (got == 1) return {.kind = Input::Kind::byte, .byte = byte};
  if (got < 0 && errno == EINTR) return {.kind = Input::Kind::interrupted};
  return {.kind = Input::Kind::closed};
}

/// Keys come one by one and unseen as long as it lives.
class RawTerminal {
 public:
  explicit RawTerminal(Terminal& terminal) : terminal_(terminal) {
    if (::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios raw = before_;
    raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    set_ = ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    terminal_.err(kPasteMarksOn);
  }
  ~RawTerminal() {
    terminal_.err(kPasteMarksOff);
    if (set_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  Terminal& terminal_;
  termios before_ = {};
  bool set_ = false;
};

/// The rows of the screen.
size_t rows_of_screen() {
  winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1) return size.ws_row;
  return 24;
}

/// True for a terminal that cannot move its cursor.
bool dumb() {
  const char* kind = std::getenv("TERM");
  return kind == nullptr || std::string_view(kind).empty() || std::string_view(kind) == "dumb";
}

}  // namespace

struct LineReader::Editor {
  explicit Editor(Terminal& shown_on) : terminal(shown_on) {}

  Ending read(std::string_view prompt, std::string& text);
  /// Returns how the line ended; empty while it goes on.
  std::optional<Ending> press(const Key& key);
  void edit(const Key& key);
  void recall(int step);
  void search();
  void draw(std::string_view prompt);
  void suspend();

  Terminal& terminal;
  std::filesystem::path file;
  LineHistory history;
  KeyReader keys{read_byte};
  EditedLine line;
  std::string typed;       // before the next line is read
  size_t place = 0;        // in the history; its size: the line that is typed
  std::string unfinished;  // what was typed before an older line was shown
  std::string needle;      // what is searched for
  size_t cursor_row = 0;   // on the screen, below the first row that was drawn
  bool searching = false;
};

void LineReader::Editor::draw(std::string_view prompt) {
  const int columns = std::max(terminal.width(), 8);
  const size_t rows_max = rows_of_screen();
  const EditedLine::Layout made = line.layout(prompt, columns);
  // The line gets as many rows as the screen has, with the cursor's among them.
  const size_t first = made.cursor_row < rows_max ? 0 : made.cursor_row - rows_max + 1;
  const size_t count = std::min(made.rows.size() - first, rows_max);
  // The terminal does not wrap here: its widths of rare characters may differ.
  std::string out = "\x1b[?7l";
  if (cursor_row > 0) out += concat("\x1b[", cursor_row, "A");
  out += "\r\x1b[J";
  for (size_t i = 0; i < count; ++i) out += concat(i > 0 ? "\r\n" : "", made.rows[first + i]);
  cursor_row = made.cursor_row - first;
  if (const size_t up = count - 1 - cursor_row; up > 0) out += concat("\x1b[", up, "A");
  out += concat("\r", made.before_cursor, "\x1b[?7h");
  terminal.err(out);
}

void LineReader::Editor::recall(int step) {
  const auto& lines = history.lines();
  if (step < 0 ? place == 0 : place == lines.size()) return;
  if (place == lines.size()) unfinished = line.text();
  place = step < 0 ? place - 1 : place + 1;
  line.set(place == lines.size() ? unfinished : lines[place]);
}

/// The line before that holds what was typed when the search began.
void LineReader::Editor::search() {
  const auto& lines = history.lines();
  if (!searching) needle = line.text();
  for (size_t i = place; i-- > 0;) {
    if (lines[i].find(needle) == std::string::npos) continue;
    if (place == lines.size()) unfinished = line.text();
    place = i;
    return line.set(lines[i]);
  }
}

void LineReader::Editor::suspend() {
  std::raise(SIGTSTP);
  cursor_row = 0;
}

void LineReader::Editor::edit(const Key& key) {
  using Toward = EditedLine::Toward;
  using Reach = EditedLine::Reach;
  struct Move {
    Kind key;
    Toward toward;
    Reach reach;
  };
  constexpr Move kMoves[] = {
      {Kind::left, Toward::left, Reach::character}, {Kind::right, Toward::right, Reach::character},
      {Kind::word_left, Toward::left, Reach::word}, {Kind::word_right, Toward::right, Reach::word},
      {Kind::begin, Toward::left, Reach::line},     {Kind::end, Toward::right, Reach::line}};
  constexpr Move kErasures[] = {{Kind::erase_left, Toward::left, Reach::character},
                                {Kind::erase_right, Toward::right, Reach::character},
                                {Kind::control_d, Toward::right, Reach::character},
                                {Kind::erase_word_left, Toward::left, Reach::word},
                                {Kind::erase_word_right, Toward::right, Reach::word},
                                {Kind::erase_to_begin, Toward::left, Reach::line},
                                {Kind::erase_to_end, Toward::right, Reach::line}};
  for (const Move& row : kMoves)
    if (row.key == key.kind) line.move(row.toward, row.reach);
  for (const Move& row : kErasures)
    if (row.key == key.kind) line.erase(row.toward, row.reach);
  if (key.kind == Kind::text) line.insert(key.text);
  if (key.kind == Kind::yank) line.yank();
  if (key.kind == Kind::up) recall(-1);
  if (key.kind == Kind::down) recall(1);
  if (key.kind == Kind::search) search();
  searching = key.kind == Kind::search;
}

std::optional<LineReader::Ending> LineReader::Editor::press(const Key& key) {
  switch (key.kind) {
    case Kind::enter:
      return Ending::line;
    case Kind::interrupt:
      return Ending::interrupted;
    case Kind::closed:
      return Ending::end_of_input;
    case Kind::control_d:
      if (line.text().empty()) return Ending::end_of_input;
      break;
    case Kind::clear:
      terminal.err("\x1b[H\x1b[2J");
      cursor_row = 0;
      break;
    default:
      break;
  }
  edit(key);
  return std::nullopt;
}

LineReader::Ending LineReader::Editor::read(std::string_view prompt, std::string& text) {
  auto raw = std::make_unique<RawTerminal>(terminal);
  line.set(std::exchange(typed, {}));
  place = history.lines().size();
  cursor_row = 0;
  std::optional<Ending> ending;
  while (!ending) {
    draw(prompt);
    const Key key = keys.next();
    if (key.kind == Kind::suspend) {
      raw.reset();
      suspend();
      raw = std::make_unique<RawTerminal>(terminal);
    }
    ending = press(key);
  }
  line.move(EditedLine::Toward::right, EditedLine::Reach::line);
  draw(prompt);  // what follows is written below all of its rows
  if (*ending != Ending::line) return *ending;
  terminal.err("\r\n");
  text = line.text();
  while (text.ends_with('\n')) text.pop_back();
  history.add(text);
  return *ending;
}

LineReader::LineReader(Terminal& terminal, std::filesystem::path history_file)
    : terminal_(terminal) {
  const bool person =
      terminal.input_watcher() == Watcher::person && terminal.err_watcher() == Watcher::person;
  if (!person || dumb()) return;
  editor_ = std::make_unique<Editor>(terminal);
  editor_->file = std::move(history_file);
  if (!editor_->file.empty()) editor_->history = LineHistory::read(editor_->file);
}

LineReader::~LineReader() {
  if (!editor_ || editor_->file.empty()) return;
  if (const auto written = editor_->history.write(editor_->file); !written.ok())
    terminal_.err(concat(written.error().message, "\n"));
}

LineReader::Ending LineReader::read_one(std::string_view prompt, std::string& line) {
  if (editor_) return editor_->read(prompt, line);
  if (terminal_.input_watcher() == Watcher::person) terminal_.err(prompt);
  line.clear();
  errno = 0;
  if (std::getline(std::cin, line)) return Ending::line;
  if (errno != EINTR) return Ending::end_of_input;
  std::clearerr(stdin);
  std::cin.clear();
  return Ending::interrupted;
}

void LineReader::begin_with(std::string_view text) {
  if (editor_) editor_->typed = text;
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
