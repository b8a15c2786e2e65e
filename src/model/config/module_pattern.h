// ModulePattern: one entry of a quantization config's target or ignore list, matched against module
// names as the checkpoint spells them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

class ModulePattern {
 public:
  /// Ordered from most to least specific; a module takes the scheme of its most specific match.
  enum class Kind : uint8_t { exact, regex, wildcard, every_linear };

  /// compressed-tensors: "re:<python regex, anchored at the start>", the class name "Linear", or an
  /// exact module name. Errors: unsupported for a regex this program cannot read.
  static Result<ModulePattern> compressed_tensors(std::string_view text);
  /// ModelOpt: a name, which also covers everything below it, or shell wildcards (*, ?).
  static ModulePattern modelopt(std::string_view text);

  Kind kind() const { return kind_; }
  const std::string& text() const { return text_; }
  bool matches(std::string_view module) const;

 private:
  struct Regex;  // keeps <regex> out of the header
  Kind kind_ = Kind::exact;
  bool covers_below_ = false;
  std::string text_;
  std::shared_ptr<const Regex> regex_;
};

}  // namespace nibble
