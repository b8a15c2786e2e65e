// utf8proc knows where clusters end and how wide characters are.
#include "text/clusters.h"

#include <utf8proc.h>

#include <algorithm>

namespace nibble {

namespace {

constexpr utf8proc_int32_t kFlagFirst = 0x1F1E6;  // a flag is two of these
constexpr utf8proc_int32_t kFlagLast = 0x1F1FF;

int columns_of(utf8proc_int32_t code) {
  if (kFlagFirst <= code && code <= kFlagLast) return 2;
  return std::clamp(utf8proc_charwidth(code), 0, 2);
}

}  // namespace

std::vector<Cluster> clusters_of(std::string_view utf8) {
  std::vector<Cluster> made;
  utf8proc_int32_t state = 0;
  utf8proc_int32_t before = 0;
  for (size_t at = 0; at < utf8.size();) {
    utf8proc_int32_t code = 0;
    const auto left = static_cast<utf8proc_ssize_t>(utf8.size() - at);
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(utf8.data() + at);
    const auto taken = utf8proc_iterate(bytes, left, &code);
    const size_t size = taken > 0 ? static_cast<size_t>(taken) : 1;  // of bytes that are no UTF-8
    if (taken <= 0) code = 0xFFFD;
    if (made.empty() || utf8proc_grapheme_break_stateful(before, code, &state)) {
      made.push_back({utf8.substr(at, size), columns_of(code)});
    } else {
      Cluster& last = made.back();
      last.text = utf8.substr(at - last.text.size(), last.text.size() + size);
      last.columns = std::max(last.columns, columns_of(code));
    }
    before = code;
    at += size;
  }
  return made;
}

}  // namespace nibble
