// The parser: tokens -> AST with Jinja's grammar and precedence. Filters, tests and tags that the
// interpreter lacks are refused here, before anything is rendered.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/limits.h"

namespace nibble::jinja {

/// Errors: corrupt (syntax) or unsupported, as "NAME line N: ...".
Result<Block> parse(std::string_view source, std::string_view name, const TemplateLimits& limits);

}  // namespace nibble::jinja
