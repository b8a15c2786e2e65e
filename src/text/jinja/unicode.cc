// Stepping through UTF-8 and character classes (utf8proc has the tables).
#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <initializer_list>

namespace nibble::jinja {

namespace {

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

size_t length_by_lead(unsigned char lead) {
  if (lead < 0xC2) return 1;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 1;
}

struct Range {
  uint32_t first;
  uint32_t last;
};
// Other_Uppercase and Other_Lowercase of Unicode are few enough to stand in the code.
bool in_ranges(uint32_t c, std::initializer_list<Range> ranges) {
  return std::ranges::any_of(
      ranges, [&](const Range& range) { return c >= range.first && c <= range.last; });
}

utf8proc_category_t category(uint32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

}  // namespace

size_t next_character(std::string_view text, size_t position) {
  const size_t length = length_by_lead(static_cast<unsigned char>(text[position]));
  for (size_t i = 1; i < length; ++i) {
    if (position + i >= text.size() || !is_continuation(text[position + i])) return position + 1;
  }
  return position + length;
}

size_t previous_character(std::string_view text, size_t position) {
  for (size_t back = 1; back <= 4 && back <= position; ++back) {
    if (next_character(text, position - back) == position) {
      if (back > 1 || !is_continuation(text[position - 1])) return position - back;
    }
  }
  return position - 1;
}

uint32_t code_point_at(std::string_view text, size_t position) {
  const auto lead = static_cast<unsigned char>(text[position]);
  if (lead < 0x80) return lead;
  const size_t length = next_character(text, position) - position;
  if (length == 1) return 0xFFFD;
  uint32_t code_point = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    code_point = code_point << 6 | (static_cast<unsigned char>(text[position + i]) & 0x3Fu);
  }
  return code_point;
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t position = 0; position < text.size(); ++count) {
    position = next_character(text, position);
  }
  return count;
}

size_t byte_of_character(std::string_view text, size_t index) {
  size_t position = 0;
  for (; index > 0 && position < text.size(); --index) position = next_character(text, position);
  return position;
}

bool is_space(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_alpha(uint32_t code_point) {
  const auto kind = category(code_point);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(uint32_t code_point) { return category(code_point) == UTF8PROC_CATEGORY_ND; }
bool is_alnum(uint32_t code_point) {
  const auto kind = category(code_point);
  return is_alpha(code_point) || (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO);
}
bool is_upper(uint32_t c) {
  if (category(c) == UTF8PROC_CATEGORY_LU) return true;
  return in_ranges(c, {{0x2160, 0x216F},
                       {0x24B6, 0x24CF},
                       {0x1F130, 0x1F149},
                       {0x1F150, 0x1F169},
                       {0x1F170, 0x1F189}});
}
bool is_lower(uint32_t c) {
  if (category(c) == UTF8PROC_CATEGORY_LL) return true;
  return in_ranges(
      c, {{0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},
          {0x2E0, 0x2E4},     {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},
          {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
          {0x2090, 0x209C},   {0x2170, 0x217F},   {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},
          {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},   {0xAB5C, 0xAB5F},
          {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}});
}
bool is_title(uint32_t code_point) { return category(code_point) == UTF8PROC_CATEGORY_LT; }

bool is_printable(uint32_t code_point) {
  if (code_point == ' ') return true;
  const auto kind = category(code_point);
  return kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS;
}

}  // namespace nibble::jinja
