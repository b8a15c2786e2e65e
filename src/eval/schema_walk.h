// Looks through a JSON Schema before it is compiled: for keywords that would pass unseen, and for
// references that never end.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace nibble {

/// Errors: invalid_argument for a keyword of a later draft than 7, a reference that does not lead
/// into the schema, references that lead back to themselves without a step into the value, or more
/// of them than can be followed.
Result<void> check_schema_form(const Json& schema, std::string_view what);

/// True if the schema has `pattern` or `patternProperties` anywhere.
bool has_patterns(const Json& schema);

}  // namespace nibble
