// Where a JSON pointer leads to inside a schema. Private to this module.
#pragma once

#include <string_view>

#include "base/json.h"

namespace nibble {

struct PointedAt {
  const Json* value = nullptr;  // null: there is nothing
  bool is_schema = false;       // by the keywords on the way; else it may be anything
};
/// The value that a JSON pointer, "" or "/...", leads to from a schema.
PointedAt pointed_at(const Json& root, std::string_view path);

}  // namespace nibble
