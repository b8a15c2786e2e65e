// Binding of call arguments.
#include "text/jinja/arguments.h"

#include <algorithm>

namespace nibble::jinja {

Result<std::vector<const Value*>> bind(const Arguments& arguments, std::string_view function,
                                       std::initializer_list<std::string_view> parameters,
                                       size_t required) {
  std::vector<const Value*> bound(parameters.size(), nullptr);
  const size_t given = arguments.positional.size();
  if (given > parameters.size()) {
    return fail(
        concat(function, "() takes at most ", parameters.size(), " arguments (", given, " given)"));
  }
  for (size_t i = 0; i < given; ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.keyword) {
    const auto* found = std::ranges::find(parameters, name);
    if (found == parameters.end()) {
      return fail(concat(function, "() got an unexpected keyword argument '", name, "'"));
    }
    const Value*& slot = bound[static_cast<size_t>(found - parameters.begin())];
    if (slot != nullptr) {
      return fail(concat(function, "() got multiple values for argument '", name, "'"));
    }
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) {
      return fail(concat(function, "() is missing its argument '", *(parameters.begin() + i), "'"));
    }
  }
  return bound;
}

Result<int64_t> int_argument(const Value& value) {
  if (value.is_integral()) return value.as_int();
  if (value.is(Kind::undefined)) return fail(value.undefined_message());
  return fail(concat("'", type_name(value), "' object cannot be interpreted as an integer"));
}

Result<const Text*> text_argument(const Value& value, std::string_view function) {
  if (value.is(Kind::string)) return &value.as_text();
  return fail(concat(function, "() expects str, not ", type_name(value)));
}

}  // namespace nibble::jinja
