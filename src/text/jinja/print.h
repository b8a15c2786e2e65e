// Prints values: str(), repr() and json.dumps() of Python. Costs are charged by the caller's
// Runtime; nothing here knows templates.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/runtime.h"

namespace nibble::jinja {

/// Python's str(value), what {{ value }} prints: strings as they are, undefined as nothing.
Result<Text> to_text(Runtime& runtime, const Value& value);
/// The same as a Value.
Result<Value> to_text_value(Runtime& runtime, const Value& value);
/// Python's repr(value).
Result<Text> to_repr(Runtime& runtime, const Value& value);
/// repr of a string, and of a float.
std::string repr_text(std::string_view text);

struct JsonStyle {
  std::optional<std::string> indent;  // one level of it; absent: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};
/// json.dumps. The whole result is user text if any part of the value is.
Result<Text> to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace nibble::jinja
