// Checks that a JSON Schema says only what can be enforced, within limits. Anything else is refused
// with its place in the schema, never left out silently.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace nibble {

struct SchemaLimits {
  int depth_max = 32;
  int nodes_max = 4096;      // schemas in it
  int64_t count_max = 4096;  // of minItems, maxLength and their like
  size_t enum_max = 1024;
};

/// Errors: invalid_argument, with the JSON pointer of the first offending member.
Result<void> check_schema(const Json& schema, const SchemaLimits& limits = {});

}  // namespace nibble
