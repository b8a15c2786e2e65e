// Language: a set of texts over Unicode characters as a deterministic automaton, which can be
// intersected and subtracted; and Pattern, a regular expression that matches a text whole. They say
// what the strings, names and numbers of a JSON Schema may be, whatever their spelling.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

inline constexpr uint32_t kLastCharacter = 0x10FFFF;

struct CharacterRange {
  uint32_t first = 0;
  uint32_t last = 0;  // inclusive
  bool operator==(const CharacterRange&) const = default;
  auto operator<=>(const CharacterRange&) const = default;
};
using Characters = std::vector<CharacterRange>;

struct PatternNode;
using Pattern = std::shared_ptr<const PatternNode>;

struct PatternNode {
  enum class Kind : uint8_t {
    characters,
    sequence,  // without parts: the empty text
    choice,    // without parts: no text at all
    repeat,    // of parts[0]
    // Only inside the reader of ECMA-262 patterns:
    begin,
    end,
    ahead,
    not_ahead,
  };
  Kind kind = Kind::sequence;
  Characters characters;  // sorted, apart
  std::vector<Pattern> parts;
  int least = 0;
  int most = -1;  // -1: any number
};

Pattern characters_pattern(Characters characters);  // in any order
Pattern sequence_pattern(std::vector<Pattern> parts);
Pattern choice_pattern(std::vector<Pattern> parts);
Pattern repeat_pattern(Pattern part, int least, int most);
Pattern text_pattern(std::string_view utf8);
/// True if no text matches, which the functions above see.
bool is_nothing(const Pattern& pattern);
/// Any text.
Pattern anything_pattern();
Characters sorted(Characters characters);
/// All characters but these.
Characters other_characters(const Characters& characters);
/// The characters of valid UTF-8; of other bytes, each as itself.
std::vector<uint32_t> characters_of_text(std::string_view utf8);

class Language {
 public:
  struct Edge {
    CharacterRange on;
    int to = 0;
    bool operator==(const Edge&) const = default;
    auto operator<=>(const Edge&) const = default;
  };
  struct State {
    bool accepts = false;
    std::vector<Edge> edges;  // sorted, apart; a character on none of them leads nowhere
  };

  /// Errors, here and below: invalid_argument, where it takes more than kStatesMax states.
  static Result<Language> of(const Pattern& pattern);
  static Result<Language> both(const Language& a, const Language& b);
  static Result<Language> without(const Language& a, const Language& b);
  /// Makes a language from states; the first is the start.
  static Language of_states(std::vector<State> states);

  bool empty() const;
  bool accepts(std::string_view utf8) const;
  /// A text of it, or nothing where there is none.
  std::optional<std::string> example() const;
  /// The language as a regular expression. Errors: invalid_argument, if it would be too long.
  Result<Pattern> pattern() const;

  static constexpr size_t kStatesMax = 2000;

 private:
  std::vector<State> states_;  // trimmed: an accepting state can be reached from each but the first
};

/// The way in which the characters of a text are written.
enum class Spelling : uint8_t {
  plain,
  json,  // inside a JSON string: with the escapes that JSON requires, and no others
};

/// A regular expression in the syntax that xgrammar reads, of printable ASCII.
std::string regex_text(const Pattern& pattern, Spelling spelling);

}  // namespace nibble
