// The functions every template can call: range, namespace, dict, raise_exception, strftime_now.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/runtime.h"

namespace nibble::jinja {

/// The global called `name`, or nothing.
std::optional<Value> find_global(std::string_view name);
/// A global of Jinja that find_global lacks.
bool is_unsupported_global(std::string_view name);

/// `function.kind` is global.
Result<Value> call_global(Runtime& runtime, const Callable& function, const Arguments& arguments);

}  // namespace nibble::jinja
