// Control characters as Emacs and readline have them; escape sequences of xterm and its kind.
#include "cli/chat/typed_keys.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "text/tokenizer/tokenizer_utf8.h"

namespace nibble {

namespace {

using Kind = Key::Kind;
constexpr size_t kPasteBytesMax = size_t{1} << 20;  // what is beyond is dropped
constexpr size_t kSequenceBytesMax = 32;
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr char kEscape = '\x1b';

struct ControlKey {
  char byte;
  Kind kind;
};
constexpr ControlKey kControls[] = {
    {'\r', Kind::enter},
    {'\n', Kind::enter},
    {1, Kind::begin},
    {2, Kind::left},
    {3, Kind::interrupt},
    {4, Kind::control_d},
    {5, Kind::end},
    {6, Kind::right},
    {8, Kind::erase_left},
    {11, Kind::erase_to_end},
    {12, Kind::clear},
    {14, Kind::down},
    {16, Kind::up},
    {18, Kind::search},
    {21, Kind::erase_to_begin},
    {23, Kind::erase_word_left},
    {25, Kind::yank},
    {26, Kind::suspend},
    {127, Kind::erase_left},
};

struct NamedSequence {
  std::string_view text;  // after ESC [
  Kind kind;
};
constexpr NamedSequence kSequences[] = {
    {"A", Kind::up},           {"B", Kind::down},          {"C", Kind::right},
    {"D", Kind::left},         {"H", Kind::begin},         {"F", Kind::end},
    {"1~", Kind::begin},       {"7~", Kind::begin},        {"4~", Kind::end},
    {"8~", Kind::end},         {"3~", Kind::erase_right},  {"1;5C", Kind::word_right},
    {"1;5D", Kind::word_left}, {"1;3C", Kind::word_right}, {"1;3D", Kind::word_left},
    {"5C", Kind::word_right},  {"5D", Kind::word_left},    {"3;5~", Kind::erase_word_right},
};

/// Text as it may stand in a line: line breaks in one way, no other control characters than tabs.
std::string cleaned(std::string_view bytes) {
  std::string text;
  append_lossy_utf8(text, bytes, Utf8End::replace);
  std::string made;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\r') {
      made += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else if (c == '\xC2' && i + 1 < text.size() &&
               static_cast<unsigned char>(text[i + 1]) < 0xA0) {
      ++i;  // a control character of two bytes
    } else if (static_cast<unsigned char>(c) >= ' ' ? c != 127 : c == '\n' || c == '\t') {
      made += c;
    }
  }
  return made;
}

}  // namespace

/// One character of UTF-8 whose first byte is there; U+FFFD for bytes that are none.
std::string KeyReader::character(char first) {
  const auto lead = static_cast<unsigned char>(first);
  const size_t size = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  std::string made(1, first);
  while (made.size() < size) {
    const Input input = read_(Wait::moment);
    if (input.kind != Input::Kind::byte) break;
    if ((static_cast<unsigned char>(input.byte) & 0xC0U) != 0x80U) {
      kept_ = input.byte;
      break;
    }
    made += input.byte;
  }
  return cleaned(made);
}

/// Returns the text between the two marks of a paste.
Key KeyReader::pasted() {
  std::string made;
  std::string end;  // the last bytes
  while (end != kPasteEnd) {
    const Input input = read_(Wait::forever);
    if (input.kind == Input::Kind::closed) return {.kind = Kind::closed, .text = {}};
    if (input.kind != Input::Kind::byte) continue;
    if (made.size() < kPasteBytesMax + kPasteEnd.size()) made += input.byte;
    end += input.byte;
    if (end.size() > kPasteEnd.size()) end.erase(0, 1);
  }
  if (made.ends_with(kPasteEnd)) made.resize(made.size() - kPasteEnd.size());
  return {.kind = Kind::text, .text = cleaned(made)};
}

/// After ESC [.
Key KeyReader::sequence() {
  std::string text;
  while (text.size() < kSequenceBytesMax) {
    const Input input = read_(Wait::moment);
    if (input.kind != Input::Kind::byte) return {};
    text += input.byte;
    if (input.byte >= '@' && input.byte <= '~') break;
  }
  if (text == "200~") return pasted();
  const auto* known =
      std::ranges::find_if(kSequences, [&](const auto& row) { return row.text == text; });
  return {.kind = known != std::end(kSequences) ? known->kind : Kind::unknown, .text = {}};
}

/// After ESC.
Key KeyReader::escape() {
  const Input input = read_(Wait::moment);
  if (input.kind != Input::Kind::byte) return {};
  switch (input.byte) {
    case '[':
      return sequence();
    case 'O': {  // arrows, Home and End of terminals in another mode
      const Input last = read_(Wait::moment);
      for (const auto& [text, kind] : kSequences)
        if (last.kind == Input::Kind::byte && text == std::string_view(&last.byte, 1))
          return {.kind = kind, .text = {}};
      return {};
    }
    case 'b':
      return {.kind = Kind::word_left, .text = {}};
    case 'f':
      return {.kind = Kind::word_right, .text = {}};
    case 'd':
      return {.kind = Kind::erase_word_right, .text = {}};
    case 127:
    case 8:
      return {.kind = Kind::erase_word_left, .text = {}};
    case '\r':
    case '\n':
      return {.kind = Kind::text, .text = "\n"};
    default:
      return {};
  }
}

Key KeyReader::next() {
  Input input{.kind = Input::Kind::byte, .byte = 0};
  if (kept_)
    input.byte = *std::exchange(kept_, std::nullopt);
  else
    input = read_(Wait::forever);
  if (input.kind == Input::Kind::closed) return {.kind = Kind::closed, .text = {}};
  if (input.kind == Input::Kind::interrupted) return {.kind = Kind::interrupt, .text = {}};
  if (input.kind != Input::Kind::byte) return {};
  if (input.byte == kEscape) return escape();
  for (const ControlKey& row : kControls)
    if (row.byte == input.byte) return {.kind = row.kind, .text = {}};
  if (static_cast<unsigned char>(input.byte) < ' ') return {};
  return {.kind = Kind::text, .text = character(input.byte)};
}

}  // namespace nibble
