// SplitRegex: one foreign split pattern through PCRE2's JIT. \s, \p{L}, \p{M} and \p{N} are
// rewritten to mean what they mean to Oniguruma; constructs the two engines read differently are
// refused. Other properties (\p{Lu}, \p{Han}) lack characters younger than PCRE2's Unicode (14 in
// version 10.42).
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"

namespace nibble {

class SplitRegex {
 public:
  struct Compiled;
  explicit SplitRegex(std::unique_ptr<Compiled> compiled);  // compile() is the way to make one
  /// Errors: unsupported (named construct), corrupt (PCRE2's words and the offset).
  static Result<std::shared_ptr<const SplitRegex>> compile(std::string_view pattern);
  ~SplitRegex();
  SplitRegex(const SplitRegex&) = delete;
  SplitRegex& operator=(const SplitRegex&) = delete;

  /// Calls `piece` for every match and every non-empty gap between matches, in order, until it
  /// fails. Errors: unsupported, when a match exceeds the engine's limits.
  Result<void> split(std::string_view text,
                     const std::function<Result<void>(std::string_view)>& piece) const;

 private:
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace nibble
