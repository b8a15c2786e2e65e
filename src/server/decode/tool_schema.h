// ToolSchemas: what a request's tools declare about their parameters, as far as it decides how the
// text of a value becomes JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace nibble {

enum class ParameterKind : uint8_t {
  text,   // a string: the value's text as it is
  value,  // something else: JSON if it parses as what is declared, else a string
};

/// held: the call followed a grammar, so that its schema was checked and its text is exact.
enum class CallText : uint8_t { free, held };

class ToolSchemas {
 public:
  ToolSchemas() = default;
  /// `tools`: the request's list of {"type":"function","function":{...}}, or null.
  explicit ToolSchemas(Json tools) : tools_(std::move(tools)) {}

  bool empty() const { return !tools_.is_array() || tools_.as_array().empty(); }
  ParameterKind kind(std::string_view function, std::string_view parameter,
                     CallText call = CallText::free) const;
  /// The JSON text of a value written as plain text.
  std::string json_of(std::string_view function, std::string_view parameter, std::string_view text,
                      CallText call = CallText::free) const;

 private:
  /// The schema of all parameters, or nullptr.
  const Json* parameters(std::string_view function) const;
  /// The parameter's schema, or nullptr.
  const Json* schema(std::string_view function, std::string_view parameter) const;
  Json tools_;
};

}  // namespace nibble
