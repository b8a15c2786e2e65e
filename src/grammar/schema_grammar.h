// Writes the grammar of a JSON Schema, in xgrammar's notation. What it accepts fulfils the schema;
// it takes properties in the order of the schema, none that it does not name unless it allows
// others in words, and numbers with a bound without an exponent.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "grammar/grammar_compiler.h"

namespace nibble {

/// `schema` has passed check_schema. Errors: invalid_argument, with the JSON pointer of what cannot
/// be enforced, or of what no value fulfils.
Result<std::string> schema_grammar(const Json& schema, int whitespace_max);

/// No value of a parameter holds it.
inline constexpr std::string_view kParameterEnd = "</parameter>";

/// The grammar of a call of one of the functions, between <tool_call> and </tool_call>, in the form
/// in which Qwen's templates write calls. A parameter that is a string stands there as it is,
/// without quotes and escapes, and others as JSON. Errors: likewise.
Result<std::string> call_grammar(std::span<const CallableTool> tools, int whitespace_max);

}  // namespace nibble
