// Literals inside tags: escapes of Python strings, and how far a number reaches.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble::jinja {

/// The value of a string literal whose body (without quotes) is given. Error: a bare sentence.
Result<std::string> unescape(std::string_view body);

struct NumberSpan {
  size_t length = 0;  // 0: malformed
  bool is_float = false;
};
/// The number that `text`, beginning with a digit, starts with.
NumberSpan scan_number(std::string_view text);

}  // namespace nibble::jinja
