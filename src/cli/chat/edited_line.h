// EditedLine: a text that a person types, with a cursor, and the way it is laid out on the rows of
// a terminal. It knows no keys and writes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

class EditedLine {
 public:
  enum class Toward : uint8_t { left, right };
  enum class Reach : uint8_t { character, word, line };

  const std::string& text() const { return text_; }
  /// The cursor stands at the end.
  void set(std::string_view utf8);
  void insert(std::string_view utf8);
  void move(Toward toward, Reach reach) { at_ = target(toward, reach); }
  /// Takes the text from the cursor so far away.
  void erase(Toward toward, Reach reach);
  /// Inserts the word or line that was erased last.
  void yank() { insert(std::string(erased_)); }

  struct Layout {
    std::vector<std::string> rows;
    size_t cursor_row = 0;
    std::string before_cursor;  // what stands left of it in its row
  };
  /// `prompt`: of one column a byte, before the text. Characters are not cut by the right edge.
  Layout layout(std::string_view prompt, int columns) const;

 private:
  size_t target(Toward toward, Reach reach) const;

  std::string text_;
  size_t at_ = 0;  // bytes before the cursor; it is between clusters
  std::string erased_;
};

}  // namespace nibble
