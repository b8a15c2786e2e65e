// The messages of errors, and of checks of a Result that fail.
#include "base/result.h"

namespace nibble {

Error make_error(ErrorCode code, const ErrorParts& parts) {
  std::string message(parts.what);
  if (!parts.expected.empty()) message += concat(": expected ", parts.expected);
  if (!parts.found.empty())
    message += concat(parts.expected.empty() ? ": " : ", ", "found ", parts.found);
  if (!parts.advice.empty()) message += concat("; ", parts.advice);
  return Error{code, std::move(message)};
}

namespace detail {

void value_of_failed(const Error& error) {
  check_failed(__FILE__, __LINE__, "ok()", concat("value() of a failed Result: ", error.message));
}

void error_of_value() {
  check_failed(__FILE__, __LINE__, "!ok()", "error() of a Result that holds a value");
}

}  // namespace detail
}  // namespace nibble
