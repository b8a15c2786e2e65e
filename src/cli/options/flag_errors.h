// FlagErrors: what is wrong with several flags, told together. Each error stays a line of its own.
#pragma once

#include <utility>

#include "base/result.h"

namespace nibble {

class FlagErrors {
 public:
  void add(const Error& error) {
    if (error_.message.empty()) error_.code = error.code;
    if (error.code == ErrorCode::invalid_argument) error_.code = error.code;
    error_.message += concat(error_.message.empty() ? "" : "\n", error.message);
  }
  template <typename T>
  void add(const Result<T>& result) {
    if (!result.ok()) add(result.error());
  }
  /// The value; what stands in for it if there is none is never used, since result() fails then.
  template <typename T>
  T take(Result<T> result, T stand_in = T()) {
    if (result.ok()) return std::move(result).value();
    add(result.error());
    return stand_in;
  }
  bool empty() const { return error_.message.empty(); }
  /// Fails with all that was added, a line each.
  Result<void> result() const {
    if (empty()) return {};
    return error_;
  }

 private:
  Error error_;
};

}  // namespace nibble
