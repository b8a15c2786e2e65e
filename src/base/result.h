// Result<T>: a value or an Error. World errors (file, user, network, memory) travel as Result;
// programmer errors are CHECK (base/check.h). TRY(expr) unwraps or returns the error.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/concat.h"

namespace nibble {

enum class ErrorCode {
  invalid_argument,  // the user's words or numbers are wrong
  not_found,         // a file, tensor or name is missing
  corrupt,           // data breaks its own format
  unsupported,       // well-formed, but not something this program does
  io,                // the operating system refused
  no_space,          // disk full
  no_memory,         // a plan or an allocation does not fit
  cancelled,         // the user or the peer stopped it
  internal,          // a bug made visible
};

/// One line for a person: what happened, what was expected, what was found, what to do.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
};

struct ErrorParts {
  std::string_view what;
  std::string_view expected = {};
  std::string_view found = {};
  std::string_view advice = {};
};

/// "what: expected E, found F; advice", leaving out the empty parts.
inline Error make_error(ErrorCode code, const ErrorParts& parts) {
  std::string message(parts.what);
  if (!parts.expected.empty()) message += concat(": expected ", parts.expected);
  if (!parts.found.empty())
    message += concat(parts.expected.empty() ? ": " : ", ", "found ", parts.found);
  if (!parts.advice.empty()) message += concat("; ", parts.advice);
  return Error{code, std::move(message)};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & {
    CHECK(ok(), "value() of a failed Result: ", error_text());
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK(ok(), "value() of a failed Result: ", error_text());
    return std::get<0>(state_);
  }
  T value() && {  // by value, so that `for (x : call().value())` does not dangle
    CHECK(ok(), "value() of a failed Result: ", error_text());
    return std::get<0>(std::move(state_));
  }
  const Error& error() const& {
    CHECK(!ok(), "error() of a Result that holds a value");
    return std::get<1>(state_);
  }
  Error&& error() && {
    CHECK(!ok(), "error() of a Result that holds a value");
    return std::get<1>(std::move(state_));
  }

 private:
  std::string_view error_text() const {
    return ok() ? std::string_view() : std::string_view(std::get<1>(state_).message);
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}
  bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }
  void value() const { CHECK(ok(), "value() of a failed Result: ", error_.message); }
  const Error& error() const& {
    CHECK(!ok(), "error() of a Result that holds a value");
    return error_;
  }
  Error&& error() && {
    CHECK(!ok(), "error() of a Result that holds a value");
    return std::move(error_);
  }

 private:
  Error error_;
  bool failed_ = false;
};

}  // namespace nibble

/// auto x = TRY(call()); returns the error from the enclosing function if call() failed.
#define TRY(...)                                                  \
  ({                                                              \
    auto try_result_ = (__VA_ARGS__);                             \
    if (!try_result_.ok()) return std::move(try_result_).error(); \
    std::move(try_result_).value();                               \
  })
