// text_of("%.2f MB", x) -> std::string: numbers with widths and digits for tables and pictures,
// which concat() does not have.
#pragma once

#include <cstdio>
#include <string>

namespace nibble {

/// Returns what printf prints, cut after 319 characters.
template <typename... Values>
std::string text_of(const char* format, Values... values) {
  char line[320];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

}  // namespace nibble
