// KeyReader: the bytes of a terminal as keys: text in UTF-8, pasted text, and what edits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace nibble {

struct Key {
  enum class Kind : uint8_t {
    text,
    enter,
    left,
    right,
    word_left,
    word_right,
    begin,
    end,
    up,
    down,
    erase_left,
    erase_right,
    erase_word_left,
    erase_word_right,
    erase_to_begin,
    erase_to_end,
    yank,
    search,
    clear,
    control_d,
    interrupt,
    suspend,
    closed,  // no byte will come any more
    unknown,
  };
  Kind kind = Kind::unknown;
  std::string text;  // valid UTF-8; of line breaks and tabs only where it was pasted
};

class KeyReader {
 public:
  enum class Wait : uint8_t { forever, moment };
  struct Input {
    enum class Kind : uint8_t { byte, nothing, interrupted, closed };
    Kind kind = Kind::nothing;
    char byte = 0;
  };
  using Read = std::function<Input(Wait)>;

  explicit KeyReader(Read read) : read_(std::move(read)) {}
  /// Waits for it.
  Key next();

 private:
  Key escape();
  Key sequence();
  Key pasted();
  std::string character(char first);

  Read read_;
  std::optional<char> kept_;  // a byte that ended a character too early
};

}  // namespace nibble
