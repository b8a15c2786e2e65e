// UTF-8 validity by the well-formed byte sequences of the Unicode standard.
#include "text/tokenizer/tokenizer_utf8.h"

#include <cstdint>
#include <cstring>

#include "base/json.h"

namespace nibble {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Bytes of leading ASCII, rounded down to eights.
size_t ascii_prefix(std::string_view bytes) {
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t eight;
    std::memcpy(&eight, bytes.data() + at, 8);
    if (eight & 0x8080808080808080u) break;
  }
  return at;
}

}  // namespace

std::string quoted_excerpt(std::string_view text) {
  std::string out;
  append_json_string(out, text.substr(0, valid_utf8_prefix(text.substr(0, 80))));
  return out;
}

Utf8Step step_utf8(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {Utf8Step::Kind::valid, 1};
  if (first < 0xC2 || first > 0xF4) return {Utf8Step::Kind::invalid, 1};
  const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // The second byte has a narrower range after these four first bytes.
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Utf8Step::Kind::incomplete, i};
    const bool fits = i == 1 ? byte(i) >= low && byte(i) <= high : (byte(i) & 0xC0) == 0x80;
    if (!fits) return {Utf8Step::Kind::invalid, i};
  }
  return {Utf8Step::Kind::valid, length};
}

size_t valid_utf8_prefix(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    at += ascii_prefix(bytes.substr(at));
    // A short walk before trying eights again, so that mixed text is not tested twice.
    for (int i = 0; i < 16 && at < bytes.size(); ++i) {
      const Utf8Step step = step_utf8(bytes.substr(at));
      if (step.kind != Utf8Step::Kind::valid) return at;
      at += step.bytes;
    }
  }
  return at;
}

size_t append_lossy_utf8(std::string& out, std::string_view bytes, Utf8End end) {
  size_t at = 0;
  while (true) {
    const size_t valid = valid_utf8_prefix(bytes.substr(at));
    out.append(bytes.substr(at, valid));
    at += valid;
    if (at == bytes.size()) return at;
    const Utf8Step step = step_utf8(bytes.substr(at));
    if (step.kind == Utf8Step::Kind::incomplete && end == Utf8End::keep) return at;
    out.append(kReplacement);
    at += step.bytes;
  }
}

}  // namespace nibble
