// The keywords of JSON Schema that hold schemas, for walks over all schemas inside a schema.
// Private to this module; what a keyword's value may be is said in schema_check.cc.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace nibble {

/// Their values are objects of schemas.
inline constexpr std::array kSchemaMaps =
    std::to_array<std::string_view>({"properties", "patternProperties", "$defs", "definitions",
                                     "dependentSchemas", "dependencies"});
/// Their values are lists of schemas.
inline constexpr std::array kSchemaLists =
    std::to_array<std::string_view>({"allOf", "anyOf", "oneOf", "prefixItems", "items"});
/// Their values are schemas.
inline constexpr std::array kSingleSchemas =
    std::to_array<std::string_view>({"additionalProperties", "items", "additionalItems",
                                     "unevaluatedItems", "unevaluatedProperties", "propertyNames",
                                     "contentSchema", "contains", "not", "if", "then", "else"});

inline bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace nibble
