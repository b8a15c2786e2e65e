// Arguments of calls: matching them to parameter names and reading their kinds.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"

namespace nibble::jinja {

/// One pointer per parameter, null where the call gives none. Errors: too many arguments, an
/// unknown or doubled keyword, fewer than `required`.
Result<std::vector<const Value*>> bind(const Arguments& arguments, std::string_view function,
                                       std::initializer_list<std::string_view> parameters,
                                       size_t required = 0);

/// Python's words for the wrong kind: "'str' object cannot be interpreted as an integer".
Result<int64_t> int_argument(const Value& value);
/// A string. Error: "expected str, got int" in the words of `function`.
Result<const Text*> text_argument(const Value& value, std::string_view function);

}  // namespace nibble::jinja
