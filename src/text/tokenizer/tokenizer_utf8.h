// UTF-8 for the tokenizer: decoding of valid text, and the replacement of invalid sequences by
// U+FFFD exactly as Python's errors="replace" and Rust's from_utf8_lossy do it (one per maximal
// subpart, Unicode 3.9 table 3-7).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nibble {

struct Utf8Char {
  char32_t code;
  uint32_t bytes;
};

/// The character at `at` of valid UTF-8; `at` must be the start of one.
inline Utf8Char decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 31) << 6 | (byte(1) & 63u), 2};
  if (first < 0xF0) return {(first & 15) << 12 | (byte(1) & 63u) << 6 | (byte(2) & 63u), 3};
  return {(first & 7) << 18 | (byte(1) & 63u) << 12 | (byte(2) & 63u) << 6 | (byte(3) & 63u), 4};
}

/// Start of the last character of a non-empty valid text.
inline size_t last_utf8_start(std::string_view text) {
  size_t at = text.size() - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

/// Bytes of the longest valid prefix of `bytes`.
size_t valid_utf8_prefix(std::string_view bytes);

/// At most 80 bytes of `text` in quotes, on one line, for error messages about foreign files.
std::string quoted_excerpt(std::string_view text);

/// The reading of the bytes at the start of a non-empty string.
struct Utf8Step {
  enum class Kind { valid, invalid, incomplete } kind;
  size_t bytes;  // of the character; of the maximal subpart; of the whole rest
};
Utf8Step step_utf8(std::string_view bytes);

/// Says if bytes at the end that may still become a character are replaced or left.
enum class Utf8End { replace, keep };
/// Appends `bytes` to `out` with invalid sequences replaced; returns how many were used.
size_t append_lossy_utf8(std::string& out, std::string_view bytes, Utf8End end);

}  // namespace nibble
