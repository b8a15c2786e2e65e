// Methods of str, list, tuple, dict and the loop variable: the immutable part of Python's.
#pragma once

#include <string_view>

#include "text/jinja/runtime.h"

namespace nibble::jinja {

enum class MethodAccess {
  none,         // Python has no such attribute on this type
  callable,     // call_method knows it
  forbidden,    // exists, but changes its object: the sandbox says no
  unsupported,  // exists in Python, not here
};
MethodAccess method_access(const Value& value, std::string_view name);
/// A method of str that Python has and call_method lacks.
bool is_unsupported_method(std::string_view name);

/// `method.kind` is method.
Result<Value> call_method(Runtime& runtime, const Callable& method, const Arguments& arguments);

/// The methods of str; for methods.cc only.
Result<Value> call_text_method(Runtime& runtime, const Text& self, std::string_view name,
                               const Arguments& arguments);

/// Python's split; no separator means runs of white space. `limit` < 0: no limit.
enum class Side { left, right };
std::vector<Text> split_text(const Text& text, const Text* separator, int64_t limit, Side from);
std::vector<Text> split_lines(const Text& text);
enum class Ends { left, right, both };
/// Python's strip; no characters means white space.
Text strip_text(const Text& text, const Text* characters, Ends ends);
/// Python's replace; `limit` < 0: all.
Result<Text> replace_text(Runtime& runtime, const Text& text, const Text& from, const Text& to,
                          int64_t limit);

}  // namespace nibble::jinja
