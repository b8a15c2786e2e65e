// Program: a parsed template that can be rendered. Knows the language, not what a chat is.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace nibble::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

class Program {
 public:
  /// Errors: corrupt or unsupported, as "NAME line N: ...".
  static Result<Program> parse(std::string_view source, std::string_view name,
                               const TemplateLimits& limits);

  /// Renders once; `variables` were made with the same runtime. Errors: invalid_argument; messages
  /// of raise_exception exactly, others in Python's words with " (NAME, line N)" added.
  Result<Text> render(Runtime& runtime, Variables variables) const;

 private:
  std::string name_;
  Block body_;
};

}  // namespace nibble::jinja
