// LineReader: lines a person types, with editing and a history kept between sessions; plain lines
// from a pipe. What a person types is UTF-8, whatever the locale says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "cli/terminal.h"

namespace nibble {

class LineReader {
 public:
  enum class Ending : uint8_t { line, interrupted, end_of_input };

  /// `history`: file to keep lines in, or empty. Editing only where a person types.
  LineReader(Terminal& terminal, std::filesystem::path history);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line without its newline. A line that begins with """ goes on to the line that ends
  /// with """; a line that is pasted may have several. interrupted: Ctrl-C while typing.
  Ending read(std::string_view prompt, std::string& line);
  /// The next line begins with this text, as if typed; not from a pipe.
  void begin_with(std::string_view text);

 private:
  struct Editor;
  Ending read_one(std::string_view prompt, std::string& line);
  Terminal& terminal_;
  std::unique_ptr<Editor> editor_;  // empty: plain
};

}  // namespace nibble
