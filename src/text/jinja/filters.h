// Filters: {{ value | name(arguments) }}. Found by name when a template is parsed.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace nibble::jinja {

struct NamedFilter {
  std::string_view name;
  FilterFunction function;
};

/// Null for names not in the tables below.
FilterFunction find_filter(std::string_view name);
/// A filter of Jinja that find_filter lacks.
bool is_unsupported_filter(std::string_view name);

// The tables, by file.
FilterFunction find_text_filter(std::string_view name);      // filters_text.cc
FilterFunction find_number_filter(std::string_view name);    // filters_number.cc
FilterFunction find_sequence_filter(std::string_view name);  // filters_sequence.cc
FilterFunction find_select_filter(std::string_view name);    // filters_select.cc

}  // namespace nibble::jinja
