// Tests: {% if value is name(arguments) %}. Found by name when a template is parsed.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace nibble::jinja {

/// Null for unknown names.
TestFunction find_test(std::string_view name);

}  // namespace nibble::jinja
