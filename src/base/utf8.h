// UTF-8 of one code point. Decoding and checking text is what `text` does.
#pragma once

#include <cstdint>
#include <string>

namespace nibble {

/// Appends the one to four bytes of `code`, which must be at most 0x10FFFF. Surrogates are written
/// as three bytes, as Python's "surrogatepass" writes them.
inline void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

}  // namespace nibble
