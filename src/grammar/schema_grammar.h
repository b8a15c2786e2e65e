// Writes the grammar of a JSON Schema, in xgrammar's notation. What it accepts fulfils the schema;
// it takes properties in the order of the schema, none that it does not name unless it allows
// others in words, and numbers with a bound without an exponent.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"

namespace nibble {

/// `schema` has passed check_schema. Errors: invalid_argument, with the JSON pointer of what cannot
/// be enforced, or of what no value fulfils.
Result<std::string> schema_grammar(const Json& schema, int whitespace_max);

}  // namespace nibble
