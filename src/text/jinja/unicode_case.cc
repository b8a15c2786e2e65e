// Python's case mappings: simple mappings from utf8proc, the full ones (one character becomes
// several) from Unicode's SpecialCasing below, and the final sigma rule.
#include <utf8proc.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/utf8.h"
#include "text/jinja/unicode.h"

namespace nibble::jinja {

namespace {

struct SpecialCase {
  uint32_t code_point;
  const char* mapped;
};

constexpr SpecialCase kUpper[] = {
    {0x00DF, "SS"},
    {0x0149, "\u02BCN"},
    {0x01F0, "J\u030C"},
    {0x0390, "\u0399\u0308\u0301"},
    {0x03B0, "\u03A5\u0308\u0301"},
    {0x0587, "\u0535\u0552"},
    {0x1E96, "H\u0331"},
    {0x1E97, "T\u0308"},
    {0x1E98, "W\u030A"},
    {0x1E99, "Y\u030A"},
    {0x1E9A, "A\u02BE"},
    {0x1F50, "\u03A5\u0313"},
    {0x1F52, "\u03A5\u0313\u0300"},
    {0x1F54, "\u03A5\u0313\u0301"},
    {0x1F56, "\u03A5\u0313\u0342"},
    {0x1F80, "\u1F08\u0399"},
    {0x1F81, "\u1F09\u0399"},
    {0x1F82, "\u1F0A\u0399"},
    {0x1F83, "\u1F0B\u0399"},
    {0x1F84, "\u1F0C\u0399"},
    {0x1F85, "\u1F0D\u0399"},
    {0x1F86, "\u1F0E\u0399"},
    {0x1F87, "\u1F0F\u0399"},
    {0x1F88, "\u1F08\u0399"},
    {0x1F89, "\u1F09\u0399"},
    {0x1F8A, "\u1F0A\u0399"},
    {0x1F8B, "\u1F0B\u0399"},
    {0x1F8C, "\u1F0C\u0399"},
    {0x1F8D, "\u1F0D\u0399"},
    {0x1F8E, "\u1F0E\u0399"},
    {0x1F8F, "\u1F0F\u0399"},
    {0x1F90, "\u1F28\u0399"},
    {0x1F91, "\u1F29\u0399"},
    {0x1F92, "\u1F2A\u0399"},
    {0x1F93, "\u1F2B\u0399"},
    {0x1F94, "\u1F2C\u0399"},
    {0x1F95, "\u1F2D\u0399"},
    {0x1F96, "\u1F2E\u0399"},
    {0x1F97, "\u1F2F\u0399"},
    {0x1F98, "\u1F28\u0399"},
    {0x1F99, "\u1F29\u0399"},
    {0x1F9A, "\u1F2A\u0399"},
    {0x1F9B, "\u1F2B\u0399"},
    {0x1F9C, "\u1F2C\u0399"},
    {0x1F9D, "\u1F2D\u0399"},
    {0x1F9E, "\u1F2E\u0399"},
    {0x1F9F, "\u1F2F\u0399"},
    {0x1FA0, "\u1F68\u0399"},
    {0x1FA1, "\u1F69\u0399"},
    {0x1FA2, "\u1F6A\u0399"},
    {0x1FA3, "\u1F6B\u0399"},
    {0x1FA4, "\u1F6C\u0399"},
    {0x1FA5, "\u1F6D\u0399"},
    {0x1FA6, "\u1F6E\u0399"},
    {0x1FA7, "\u1F6F\u0399"},
    {0x1FA8, "\u1F68\u0399"},
    {0x1FA9, "\u1F69\u0399"},
    {0x1FAA, "\u1F6A\u0399"},
    {0x1FAB, "\u1F6B\u0399"},
    {0x1FAC, "\u1F6C\u0399"},
    {0x1FAD, "\u1F6D\u0399"},
    {0x1FAE, "\u1F6E\u0399"},
    {0x1FAF, "\u1F6F\u0399"},
    {0x1FB2, "\u1FBA\u0399"},
    {0x1FB3, "\u0391\u0399"},
    {0x1FB4, "\u0386\u0399"},
    {0x1FB6, "\u0391\u0342"},
    {0x1FB7, "\u0391\u0342\u0399"},
    {0x1FBC, "\u0391\u0399"},
    {0x1FC2, "\u1FCA\u0399"},
    {0x1FC3, "\u0397\u0399"},
    {0x1FC4, "\u0389\u0399"},
    {0x1FC6, "\u0397\u0342"},
    {0x1FC7, "\u0397\u0342\u0399"},
    {0x1FCC, "\u0397\u0399"},
    {0x1FD2, "\u0399\u0308\u0300"},
    {0x1FD3, "\u0399\u0308\u0301"},
    {0x1FD6, "\u0399\u0342"},
    {0x1FD7, "\u0399\u0308\u0342"},
    {0x1FE2, "\u03A5\u0308\u0300"},
    {0x1FE3, "\u03A5\u0308\u0301"},
    {0x1FE4, "\u03A1\u0313"},
    {0x1FE6, "\u03A5\u0342"},
    {0x1FE7, "\u03A5\u0308\u0342"},
    {0x1FF2, "\u1FFA\u0399"},
    {0x1FF3, "\u03A9\u0399"},
    {0x1FF4, "\u038F\u0399"},
    {0x1FF6, "\u03A9\u0342"},
    {0x1FF7, "\u03A9\u0342\u0399"},
    {0x1FFC, "\u03A9\u0399"},
    {0xFB00, "FF"},
    {0xFB01, "FI"},
    {0xFB02, "FL"},
    {0xFB03, "FFI"},
    {0xFB04, "FFL"},
    {0xFB05, "ST"},
    {0xFB06, "ST"},
    {0xFB13, "\u0544\u0546"},
    {0xFB14, "\u0544\u0535"},
    {0xFB15, "\u0544\u053B"},
    {0xFB16, "\u054E\u0546"},
    {0xFB17, "\u0544\u053D"},
};

constexpr SpecialCase kTitle[] = {
    {0x00DF, "Ss"},
    {0x0149, "\u02BCN"},
    {0x01F0, "J\u030C"},
    {0x0390, "\u0399\u0308\u0301"},
    {0x03B0, "\u03A5\u0308\u0301"},
    {0x0587, "\u0535\u0582"},
    {0x1E96, "H\u0331"},
    {0x1E97, "T\u0308"},
    {0x1E98, "W\u030A"},
    {0x1E99, "Y\u030A"},
    {0x1E9A, "A\u02BE"},
    {0x1F50, "\u03A5\u0313"},
    {0x1F52, "\u03A5\u0313\u0300"},
    {0x1F54, "\u03A5\u0313\u0301"},
    {0x1F56, "\u03A5\u0313\u0342"},
    {0x1FB2, "\u1FBA\u0345"},
    {0x1FB4, "\u0386\u0345"},
    {0x1FB6, "\u0391\u0342"},
    {0x1FB7, "\u0391\u0342\u0345"},
    {0x1FC2, "\u1FCA\u0345"},
    {0x1FC4, "\u0389\u0345"},
    {0x1FC6, "\u0397\u0342"},
    {0x1FC7, "\u0397\u0342\u0345"},
    {0x1FD2, "\u0399\u0308\u0300"},
    {0x1FD3, "\u0399\u0308\u0301"},
    {0x1FD6, "\u0399\u0342"},
    {0x1FD7, "\u0399\u0308\u0342"},
    {0x1FE2, "\u03A5\u0308\u0300"},
    {0x1FE3, "\u03A5\u0308\u0301"},
    {0x1FE4, "\u03A1\u0313"},
    {0x1FE6, "\u03A5\u0342"},
    {0x1FE7, "\u03A5\u0308\u0342"},
    {0x1FF2, "\u1FFA\u0345"},
    {0x1FF4, "\u038F\u0345"},
    {0x1FF6, "\u03A9\u0342"},
    {0x1FF7, "\u03A9\u0342\u0345"},
    {0xFB00, "Ff"},
    {0xFB01, "Fi"},
    {0xFB02, "Fl"},
    {0xFB03, "Ffi"},
    {0xFB04, "Ffl"},
    {0xFB05, "St"},
    {0xFB06, "St"},
    {0xFB13, "\u0544\u0576"},
    {0xFB14, "\u0544\u0565"},
    {0xFB15, "\u0544\u056B"},
    {0xFB16, "\u054E\u0576"},
    {0xFB17, "\u0544\u056D"},
};

enum class Case { upper, lower, title };

const char* special_case(uint32_t code_point, std::span<const SpecialCase> table) {
  const auto found = std::ranges::lower_bound(table, code_point, {}, &SpecialCase::code_point);
  return found != table.end() && found->code_point == code_point ? found->mapped : nullptr;
}

bool is_cased(uint32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

bool is_case_ignorable(uint32_t c) {
  static constexpr uint32_t kMidWord[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                          0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                          0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  if (std::ranges::find(kMidWord, c) != std::end(kMidWord)) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return false;
  }
}

/// A capital sigma at `position` ends a word: a cased letter before it, none after it.
bool is_final_sigma(std::string_view text, size_t position) {
  size_t before = position;
  uint32_t c = 0;
  do {
    if (before == 0) return false;
    before = previous_character(text, before);
    c = code_point_at(text, before);
  } while (is_case_ignorable(c));
  if (!is_cased(c)) return false;
  for (size_t after = next_character(text, position); after < text.size();
       after = next_character(text, after)) {
    c = code_point_at(text, after);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

void append_mapped(std::string& out, std::string_view text, size_t position, Case to) {
  constexpr uint32_t kCapitalSigma = 0x3A3;
  constexpr uint32_t kDottedCapitalI = 0x130;
  const uint32_t c = code_point_at(text, position);
  const auto simple = static_cast<utf8proc_int32_t>(c);
  const char* special = nullptr;
  if (to == Case::lower) {
    if (c == kDottedCapitalI) special = "i\u0307";
    if (c == kCapitalSigma && is_final_sigma(text, position)) special = "\u03C2";
  } else if (c >= 0x80) {
    special = to == Case::upper ? special_case(c, kUpper) : special_case(c, kTitle);
  }
  if (special != nullptr) {
    out += special;
  } else if (c == 0xFFFD) {
    out += text.substr(position, next_character(text, position) - position);
  } else if (to == Case::lower) {
    append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(simple)));
  } else if (to == Case::upper) {
    append_utf8(out, static_cast<uint32_t>(utf8proc_toupper(simple)));
  } else {
    append_utf8(out, static_cast<uint32_t>(utf8proc_totitle(simple)));
  }
}

/// Maps each character by what `choose(code point)` says; tags follow.
template <typename Choose>
Text map_case(const Text& text, Choose choose) {
  Text out;
  const std::string& bytes = text.bytes();
  std::string mapped;
  for (size_t position = 0; position < bytes.size();) {
    const size_t end = next_character(bytes, position);
    mapped.clear();
    append_mapped(mapped, bytes, position, choose(code_point_at(bytes, position)));
    out.append(mapped, text.origin_at(position));
    position = end;
  }
  out.markup = text.markup;
  return out;
}

}  // namespace

Text to_upper(const Text& text) {
  return map_case(text, [](uint32_t) { return Case::upper; });
}
Text to_lower(const Text& text) {
  return map_case(text, [](uint32_t) { return Case::lower; });
}
Text to_capitalized(const Text& text) {
  return map_case(text, [first = true](uint32_t) mutable {
    return std::exchange(first, false) ? Case::title : Case::lower;
  });
}
Text to_title(const Text& text) {
  return map_case(text, [inside = false](uint32_t c) mutable {
    return std::exchange(inside, is_cased(c)) ? Case::lower : Case::title;
  });
}
Text swap_case(const Text& text) {
  return map_case(text, [](uint32_t c) {
    if (is_title(c)) return Case::title;  // its own
    return is_upper(c) ? Case::lower : Case::upper;
  });
}

}  // namespace nibble::jinja
