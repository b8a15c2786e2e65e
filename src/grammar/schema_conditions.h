// Says what a JSON Schema says by conditions (not, if, dependentRequired, dependentSchemas,
// contains) with allOf, anyOf and the other keywords that schema_grammar knows.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace nibble {

/// True if a member of that name stands anywhere in it.
bool mentions(const Json& value, std::initializer_list<std::string_view> names);

/// The alternatives of `one_of` as a schema with anyOf, each without the others; nothing, where
/// that cannot be said. References begin at `root`.
std::optional<Json> exclusive_options(const Json& one_of, const Json& root);

/// The schema with its conditions said otherwise, as parts of allOf; the keywords themselves stay,
/// for references into them. What it takes is what `schema` takes, or less: items that `contains`
/// asks for come first, and what is no integer is no number. References become pointers from the
/// root (schema_addresses.h).
/// Errors: invalid_argument, for a condition that cannot be said otherwise, and for a reference
/// that is not one place for sure.
Result<Json> without_conditions(const Json& schema);

}  // namespace nibble
