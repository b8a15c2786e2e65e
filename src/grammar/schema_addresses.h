// Says what a JSON Schema says by addresses ($id, $anchor, references by URI) with JSON pointers
// from its root alone. Private to this module.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace nibble {

/// The schema with every `$ref` to a place inside it in the form "#/...", whatever address it goes
/// by. References to other documents stay as they are. Errors: invalid_argument, for a reference
/// that the drafts of JSON Schema read differently, that two schemas answer to, or that leads to
/// what is no schema.
Result<Json> with_pointers(const Json& schema);

}  // namespace nibble
