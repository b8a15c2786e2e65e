// Operators with Python's semantics and Python's error messages.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace nibble::jinja {

/// + - * / // % **. Integers are 64-bit: leaving them is an error, never a wrap.
Result<Value> arithmetic(Runtime& runtime, Operator op, const Value& left, const Value& right);
/// == != < <= > >= in, not in.
Result<bool> compare(Runtime& runtime, Operator op, const Value& left, const Value& right);
/// -value and +value.
Result<Value> negate(const Value& value);
Result<Value> plus(const Value& value);

/// -1, 0, 1; Error: "'<' not supported between instances of 'int' and 'str'", naming `op`.
Result<int> order(const Value& left, const Value& right, std::string_view op = "<");

/// HTML escapes of a Text, as Markup makes them.
Text escape_html(const Text& text);

}  // namespace nibble::jinja
