// Writes the contrary of a JSON Schema with the keywords that schema_grammar knows, for `not`, `if`
// and the other conditions of schema_conditions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace nibble {

/// An ECMA-262 pattern of all texts but these.
std::string pattern_without(const std::vector<std::string>& texts);

/// A schema that takes no value which `schema` takes: it takes all others, or fewer. Nothing, where
/// that cannot be said. `root` is what references begin at.
std::optional<Json> negated(const Json& schema, const Json& root);

/// The types but those of the list that are given by name; "number" stands for integers too.
Json types_without(const std::vector<std::string_view>& names);

}  // namespace nibble
