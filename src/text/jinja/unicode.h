// Characters of UTF-8 text for the interpreter: stepping, Python's idea of white space, and case.
// Invalid bytes never fault: a stray byte is a character of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/tagged_text.h"

namespace nibble::jinja {

/// Byte position after the character that begins at `position`.
size_t next_character(std::string_view text, size_t position);
/// Byte position of the character that ends before `position` (> 0).
size_t previous_character(std::string_view text, size_t position);
/// Code point at `position`; an invalid byte yields 0xFFFD.
uint32_t code_point_at(std::string_view text, size_t position);
/// Python's len().
size_t count_characters(std::string_view text);
/// Byte position of the character numbered `index`; the size if there are fewer.
size_t byte_of_character(std::string_view text, size_t index);

bool is_space(uint32_t code_point);
bool is_alpha(uint32_t code_point);
bool is_decimal(uint32_t code_point);
bool is_alnum(uint32_t code_point);
bool is_upper(uint32_t code_point);
bool is_lower(uint32_t code_point);
bool is_title(uint32_t code_point);
/// False for control characters, separators other than space, unassigned and private code points.
bool is_printable(uint32_t code_point);

// Python's str.upper, lower, capitalize, title, swapcase. Tags follow the characters.
Text to_upper(const Text& text);
Text to_lower(const Text& text);
Text to_capitalized(const Text& text);
Text to_title(const Text& text);
Text swap_case(const Text& text);

}  // namespace nibble::jinja
