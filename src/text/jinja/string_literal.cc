// Python's string escapes and number syntax, as Jinja reads them.
#include "text/jinja/string_literal.h"

#include <cstdint>

#include "base/utf8.h"
#include "text/jinja/unicode.h"

namespace nibble::jinja {

namespace {

int digit_value(char c, int base) {
  int value = 99;
  if (c >= '0' && c <= '9') value = c - '0';
  if (c >= 'a' && c <= 'f') value = c - 'a' + 10;
  if (c >= 'A' && c <= 'F') value = c - 'A' + 10;
  return value < base ? value : -1;
}

/// Reads up to `count` digits at `position`, moving it; how many were read is `*read`.
uint32_t read_digits(std::string_view text, size_t& position, int count, int base, int* read) {
  uint32_t value = 0;
  for (*read = 0; *read < count && position < text.size(); ++*read, ++position) {
    const int digit = digit_value(text[position], base);
    if (digit < 0) break;
    value = value * static_cast<uint32_t>(base) + static_cast<uint32_t>(digit);
  }
  return value;
}

/// An escape after its backslash, `position` at the letter; moves past it.
Result<void> append_escape(std::string& out, std::string_view body, size_t& position) {
  static constexpr std::string_view kLetters = "\\'\"abfnrtv";
  static constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
  const char letter = body[position];
  const auto bad = [&](std::string_view what) {
    return Error{ErrorCode::corrupt, concat(what, " '\\", letter, "' in a string")};
  };
  if (const size_t simple = kLetters.find(letter); simple != std::string_view::npos) {
    out.push_back(kValues[simple]);
    ++position;
    return {};
  }
  int read = 0;
  uint32_t code_point = 0;
  if (letter >= '0' && letter <= '7') {
    code_point = read_digits(body, position, 3, 8, &read);
  } else if (letter == 'x' || letter == 'u' || letter == 'U') {
    const int wanted = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
    code_point = read_digits(body, ++position, wanted, 16, &read);
    const bool surrogate = code_point >= 0xD800 && code_point < 0xE000;
    if (read != wanted || code_point > 0x10FFFF || surrogate) return bad("bad escape");
  } else if (letter == '\n') {
    ++position;
    return {};
  } else if (letter == 'N' || static_cast<unsigned char>(letter) >= 0x80) {
    return bad("unsupported escape");
  } else {
    out.push_back('\\');  // an unknown escape keeps its backslash
    out.push_back(letter);
    ++position;
    return {};
  }
  append_utf8(out, code_point);
  return {};
}

/// Digits with single underscores between them.
size_t skip_digits(std::string_view text, size_t position, int base = 10) {
  while (position < text.size()) {
    if (digit_value(text[position], base) >= 0) {
      ++position;
    } else if (text[position] == '_' && position + 1 < text.size() &&
               digit_value(text[position + 1], base) >= 0) {
      position += 2;
    } else {
      break;
    }
  }
  return position;
}

}  // namespace

Result<std::string> unescape(std::string_view body) {
  std::string out;
  for (size_t position = 0; position < body.size();) {
    if (body[position] != '\\') {
      out.push_back(body[position++]);
      continue;
    }
    ++position;  // the lexer saw to it that something follows
    TRY(append_escape(out, body, position));
  }
  return out;
}

NumberSpan scan_number(std::string_view text) {
  const auto at = [&](size_t i) { return i < text.size() ? text[i] : '\0'; };
  if (text[0] == '0' && (at(1) | 0x20) != 'e') {
    const char kind = static_cast<char>(at(1) | 0x20);
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (base != 0) {
      const size_t end = skip_digits(text, 2, base);
      return {end > 2 ? end : 0, false};
    }
  }
  size_t end = skip_digits(text, 0);
  NumberSpan span{end, false};
  if (at(end) == '.' && digit_value(at(end + 1), 10) >= 0) {
    end = skip_digits(text, end + 1);
    span = {end, true};
  }
  if ((at(end) | 0x20) == 'e') {
    const size_t sign = at(end + 1) == '+' || at(end + 1) == '-' ? 1 : 0;
    if (digit_value(at(end + 1 + sign), 10) >= 0) {
      span = {skip_digits(text, end + 1 + sign), true};
    }
  }
  const bool leading_zero = !span.is_float && span.length > 1 && text[0] == '0';
  if (leading_zero &&
      text.substr(0, span.length).find_first_not_of("0_") != std::string_view::npos) {
    return {};  // 007
  }
  return span;
}

}  // namespace nibble::jinja
