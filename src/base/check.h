// CHECK(condition, pieces...): a programmer error. Prints the values and aborts; never used for
// anything a file, a user or a network can cause (that is Result, base/result.h).
#pragma once

#include <string>

#include "base/concat.h"

namespace nibble::detail {
/// Writes one line to standard error and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& values);
}  // namespace nibble::detail

#define CHECK(condition, ...)                                                          \
  do {                                                                                 \
    if (!(condition)) [[unlikely]]                                                     \
      ::nibble::detail::check_failed(__FILE__, __LINE__, #condition,                   \
                                     ::nibble::concat("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)
