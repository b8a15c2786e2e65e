// utf8proc knows decompositions, combining classes and compositions (Unicode 15); which characters
// take part is our table's word (kNfcActive, Unicode 9). A stretch is one inactive character and
// the active ones after it: nothing combines across its ends.
#include "text/tokenizer/tokenizer_nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer_utf8.h"
#include "text/tokenizer/unicode_classes.h"

namespace nibble {

namespace {

bool is_active(char32_t code) { return (UnicodeClasses::table().bits(code) & kNfcActive) != 0; }

utf8proc_propval_t combining_class(utf8proc_int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

void decompose(char32_t code, std::vector<utf8proc_int32_t>& out) {
  utf8proc_int32_t parts[16];
  const auto count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code), parts, 16,
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), nullptr);
  CHECK(count > 0 && count <= 16, "canonical decomposition of ", static_cast<uint32_t>(code));
  out.insert(out.end(), parts, parts + count);
}

/// Canonical order: marks between two starters by combining class, otherwise as they stand.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto is_mark = [](utf8proc_int32_t code) { return combining_class(code) != 0; };
  for (auto begin = codes.begin(); begin != codes.end();) {
    begin = std::find_if(begin, codes.end(), is_mark);
    const auto end = std::find_if_not(begin, codes.end(), is_mark);
    std::stable_sort(begin, end,
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

void append_normalized(std::string& out, std::string_view stretch,
                       std::vector<utf8proc_int32_t>& codes) {
  codes.clear();
  for (size_t at = 0; at < stretch.size();) {
    const Utf8Char c = decode_utf8(stretch, at);
    // A mark younger than Unicode 9 has no class there: it stands first and stays out.
    if (at == 0 && !is_active(c.code) &&
        combining_class(static_cast<utf8proc_int32_t>(c.code)) != 0) {
      out.append(stretch.substr(0, c.bytes));
    } else {
      decompose(c.code, codes);
    }
    at += c.bytes;
  }
  order_marks(codes);
  const auto count =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  CHECK(count >= 0, "utf8proc error ", count);
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(out, static_cast<char32_t>(codes[i]));
}

size_t skip_ascii(std::string_view text, size_t at) {
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

NfcBoundary nfc_boundary(std::string_view text, size_t at) {
  if (at >= text.size()) return NfcBoundary::yes;
  return is_active(decode_utf8(text, at).code) ? NfcBoundary::no : NfcBoundary::yes;
}

size_t find_nfc_active(std::string_view text, size_t from) {
  size_t previous = from;
  for (size_t at = from; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      at = skip_ascii(text, at);
      previous = at - 1;
      continue;
    }
    const Utf8Char c = decode_utf8(text, at);
    if (is_active(c.code)) return previous;
    previous = at;
    at += c.bytes;
  }
  return text.size();
}

std::string normalize_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> codes;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = find_nfc_active(text, at);
    out.append(text.substr(at, begin - at));
    if (begin == text.size()) break;
    size_t end = begin + decode_utf8(text, begin).bytes;
    while (nfc_boundary(text, end) == NfcBoundary::no) end += decode_utf8(text, end).bytes;
    append_normalized(out, text.substr(begin, end - begin), codes);
    at = end;
  }
  return out;
}

}  // namespace nibble
