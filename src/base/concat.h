// concat("a", 1, 2.5) -> std::string. The one way messages are put together (GCC 12 has no
// std::format). Not a formatter: no widths, no precision.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace nibble {

namespace detail {
inline void append_piece(std::string& out, std::string_view piece) { out.append(piece); }
inline void append_piece(std::string& out, char piece) { out.push_back(piece); }
template <std::same_as<bool> T>  // a template, so that a char pointer does not become a bool
void append_piece(std::string& out, T piece) {
  out.append(piece ? "true" : "false");
}
template <typename T>
requires((std::integral<T> || std::floating_point<T>)&&!std::same_as<T, bool> &&
         !std::same_as<T, char>) void append_piece(std::string& out, T piece) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, piece);
  out.append(digits, end.ptr);
}
}  // namespace detail

/// Joins text, characters, booleans and numbers (shortest round-trip form) into one string.
template <typename... Pieces>
std::string concat(const Pieces&... pieces) {
  std::string out;
  (detail::append_piece(out, pieces), ...);
  return out;
}

}  // namespace nibble
