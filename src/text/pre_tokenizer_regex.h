// SplitRegex: one foreign split pattern through PCRE2's JIT. Oniguruma's \s is rewritten; constructs
// the two engines read differently are refused. PCRE2 10.42 knows Unicode 14, Oniguruma 16: letters
// added since count as unassigned here (the Qwen patterns do not pass through this file).
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"

namespace nibble {

class SplitRegex {
 public:
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
  struct Compiled;
  explicit SplitRegex(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace nibble
