// Attributes, items and slices with the look-up order of Jinja's sandbox. What does not exist is an
// undefined value that says so when used.
#pragma once

#include <string_view>

#include "text/jinja/runtime.h"

namespace nibble::jinja {

/// value.name: a method or property first, then the dict entry.
Result<Value> get_attribute(Runtime& runtime, const Value& value, std::string_view name);
/// value[key]: the entry first, then an attribute if the key is text.
Result<Value> get_item(Runtime& runtime, const Value& value, const Value& key);
/// value[start:stop:step]; none stands for an absent bound.
Result<Value> get_slice(Runtime& runtime, const Value& value, const Value (&bounds)[3]);

/// "a.b.0": the path that the `attribute` arguments of filters take; a number is an index.
Result<Value> get_path(Runtime& runtime, const Value& value, const Value& path);

}  // namespace nibble::jinja
