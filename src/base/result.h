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
Error make_error(ErrorCode code, const ErrorParts& parts);

namespace detail {
// Failed checks of a Result, as functions of their own: not every Result makes their messages.
[[noreturn]] void value_of_failed(const Error& error);
[[noreturn]] void error_of_value();
}  // namespace detail

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & {
    if (!ok()) [[unlikely]]
      detail::value_of_failed(*std::get_if<1>(&state_));
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    if (!ok()) [[unlikely]]
      detail::value_of_failed(*std::get_if<1>(&state_));
    return *std::get_if<0>(&state_);
  }
  T value() && {  // by value, so that `for (x : call().value())` does not dangle
    if (!ok()) [[unlikely]]
      detail::value_of_failed(*std::get_if<1>(&state_));
    return std::move(*std::get_if<0>(&state_));
  }
  const Error& error() const& {
    if (ok()) [[unlikely]]
      detail::error_of_value();
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    if (ok()) [[unlikely]]
      detail::error_of_value();
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}
  bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }
  void value() const {
    if (failed_) [[unlikely]]
      detail::value_of_failed(error_);
  }
  const Error& error() const& {
    if (!failed_) [[unlikely]]
      detail::error_of_value();
    return error_;
  }
  Error&& error() && {
    if (!failed_) [[unlikely]]
      detail::error_of_value();
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
