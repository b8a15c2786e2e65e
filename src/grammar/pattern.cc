// Patterns: how they are put together and written down.
#include <algorithm>
#include <cstdio>

#include "grammar/language.h"

namespace nibble {

namespace {

using Kind = PatternNode::Kind;

Pattern node(PatternNode made) { return std::make_shared<const PatternNode>(std::move(made)); }

/// Characters that JSON escapes, and those that no text has: halves of surrogate pairs.
const Characters kEscaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
const Characters kHalves = {{0xD800, 0xDFFF}};

Characters common(const Characters& a, const Characters& b) {
  Characters made;
  for (const CharacterRange& x : a)
    for (const CharacterRange& y : b)
      if (x.first <= y.last && y.first <= x.last)
        made.push_back({std::max(x.first, y.first), std::min(x.last, y.last)});
  return made;
}

void append_character(std::string& out, uint32_t character) {
  const bool word = (character >= '0' && character <= '9') ||
                    (character >= 'A' && character <= 'Z') ||
                    (character >= 'a' && character <= 'z');
  if (word) {
    out += static_cast<char>(character);
    return;
  }
  char text[16];
  std::snprintf(text, sizeof(text), character < 0x80 ? "\\x%02x" : "\\u{%x}", character);
  out += text;
}

/// In brackets even alone: xgrammar takes an escaped point for any character. Characters of three
/// and of four bytes apart from others: it lets overlong forms through where they meet.
std::string class_text(const Characters& characters) {
  std::string out;
  int classes = 0;
  for (const CharacterRange& length :
       Characters{{0, 0x7FF}, {0x800, 0xFFFF}, {0x10000, kLastCharacter}}) {
    const Characters here = common(characters, {length});
    if (here.empty()) continue;
    out += classes++ == 0 ? "[" : "|[";
    for (const CharacterRange& range : here) {
      append_character(out, range.first);
      if (range.last == range.first) continue;
      out += '-';
      append_character(out, range.last);
    }
    out += ']';
  }
  return classes == 1 ? out : "(" + out + ")";
}

/// The escapes of characters below space, of quotes and backslashes.
std::string escapes_text(const Characters& characters) {
  Characters letters;  // after the backslash
  Characters low;      // the last digit of \u000.
  Characters high;     // likewise \u001.
  for (const CharacterRange& range : characters)
    for (uint32_t c = range.first; c <= range.last; ++c) {
      const std::string_view named = "\b\f\n\r\t\"\\";
      const size_t at = named.find(static_cast<char>(c));
      const auto digit = static_cast<uint32_t>("0123456789abcdef"[c % 16]);
      if (at != std::string_view::npos)
        letters.push_back(
            {static_cast<uint32_t>("bfnrt\"\\"[at]), static_cast<uint32_t>("bfnrt\"\\"[at])});
      else
        (c < 16 ? low : high).push_back({digit, digit});
    }
  std::string out;
  const auto add = [&](const std::string& text) { out += out.empty() ? text : "|" + text; };
  if (!letters.empty()) add("\\x5c" + class_text(sorted(letters)));
  if (!low.empty()) add("\\x5cu000" + class_text(sorted(low)));
  if (!high.empty()) add("\\x5cu001" + class_text(sorted(high)));
  return out;
}

std::string characters_text(const Characters& characters, Spelling spelling) {
  if (spelling == Spelling::plain) return class_text(characters);
  const Characters plain = common(characters, other_characters(kEscaped));
  const std::string escapes = escapes_text(common(characters, kEscaped));
  if (escapes.empty()) return class_text(plain);
  if (plain.empty()) return "(" + escapes + ")";
  return "(" + class_text(plain) + "|" + escapes + ")";
}

}  // namespace

bool is_nothing(const Pattern& pattern) {
  return pattern->kind == Kind::choice && pattern->parts.empty();
}

Characters sorted(Characters characters) {
  std::ranges::sort(characters);
  Characters made;
  for (const CharacterRange& range : characters) {
    if (!made.empty() && range.first <= made.back().last + 1)
      made.back().last = std::max(made.back().last, range.last);
    else
      made.push_back(range);
  }
  return made;
}

Characters other_characters(const Characters& characters) {
  Characters made;
  uint32_t next = 0;
  for (const CharacterRange& range : sorted(characters)) {
    if (range.first > next) made.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCharacter) made.push_back({next, kLastCharacter});
  return made;
}

std::vector<uint32_t> characters_of_text(std::string_view utf8) {
  std::vector<uint32_t> made;
  for (size_t i = 0; i < utf8.size();) {
    const auto lead = static_cast<unsigned char>(utf8[i]);
    const size_t length = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t character = length == 1 ? lead : lead & (0x7FU >> length);
    for (size_t k = 1; k < length && i + k < utf8.size(); ++k)
      character = character << 6 | (static_cast<unsigned char>(utf8[i + k]) & 0x3FU);
    made.push_back(std::min(character, kLastCharacter));
    i += length;
  }
  return made;
}

Pattern characters_pattern(Characters characters) {
  Characters sound = common(sorted(std::move(characters)), other_characters(kHalves));
  if (sound.empty()) return choice_pattern({});
  return node({.kind = Kind::characters, .characters = std::move(sound), .parts = {}});
}

Pattern sequence_pattern(std::vector<Pattern> parts) {
  std::erase_if(parts,
                [](const Pattern& p) { return p->kind == Kind::sequence && p->parts.empty(); });
  if (std::ranges::any_of(parts, is_nothing)) return choice_pattern({});
  if (parts.size() == 1) return parts[0];
  return node({.kind = Kind::sequence, .characters = {}, .parts = std::move(parts)});
}

Pattern choice_pattern(std::vector<Pattern> parts) {
  std::erase_if(parts, is_nothing);
  if (parts.size() == 1) return parts[0];
  return node({.kind = Kind::choice, .characters = {}, .parts = std::move(parts)});
}

Pattern repeat_pattern(Pattern part, int least, int most) {
  if (is_nothing(part)) return least == 0 ? sequence_pattern({}) : part;
  return node({.kind = Kind::repeat,
               .characters = {},
               .parts = {std::move(part)},
               .least = least,
               .most = most});
}

Pattern text_pattern(std::string_view utf8) {
  std::vector<Pattern> parts;
  for (const uint32_t c : characters_of_text(utf8)) parts.push_back(characters_pattern({{c, c}}));
  return sequence_pattern(std::move(parts));
}

Pattern anything_pattern() {
  return repeat_pattern(characters_pattern({{0, kLastCharacter}}), 0, -1);
}

std::string regex_text(const Pattern& pattern, Spelling spelling) {
  switch (pattern->kind) {
    case Kind::characters:
      return characters_text(pattern->characters, spelling);
    case Kind::sequence: {
      std::string out;
      for (const Pattern& part : pattern->parts) out += regex_text(part, spelling);
      return out;
    }
    case Kind::choice: {
      std::string out = "(";
      for (size_t i = 0; i < pattern->parts.size(); ++i)
        out += concat(i > 0 ? "|" : "", regex_text(pattern->parts[i], spelling));
      return out + ")";
    }
    default:
      break;
  }
  const std::string inner = concat("(", regex_text(pattern->parts[0], spelling), ")");
  // In xgrammar "(a+)?" takes too much, and so may "(a+|b+){2,}".
  if (pattern->least == 0 && pattern->most == 1)
    return concat(inner.substr(0, inner.size() - 1), "|)");
  const std::string counted =
      concat("{", pattern->least, ",", std::max(pattern->least, pattern->most), "}");
  if (pattern->most >= 0) return inner + counted;
  if (pattern->least <= 1) return inner + (pattern->least == 0 ? "*" : "+");
  return concat(inner, counted, inner, "*");
}

}  // namespace nibble
