// The walk along a JSON pointer, which tells by the keywords on its way if it ends at a schema.
#include "grammar/schema_pointer.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "grammar/schema_facts.h"
#include "grammar/schema_keywords.h"

namespace nibble {

namespace {

/// A step of a JSON pointer; null: there is nothing.
const Json* step_into(const Json& from, std::string_view name) {
  if (from.is_object())
    for (const Json::Member& member : from.as_object())
      if (escaped_name(member.key) == name) return &member.value;
  if (!from.is_array() || name.empty() || name.size() >= 5) return nullptr;
  if (!std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; })) return nullptr;
  const auto index = static_cast<size_t>(std::stoi(std::string(name)));
  return index < from.as_array().size() ? &from.as_array()[index] : nullptr;
}

enum class Holds : uint8_t { nothing, schema, schemas };

/// Says if the value of a keyword is a schema or holds some.
Holds kind_of(std::string_view keyword, const Json& value) {
  if (is_one_of(value.is_array() ? std::span<const std::string_view>(kSchemaLists) : kSchemaMaps,
                keyword))
    return Holds::schemas;
  return is_one_of(kSingleSchemas, keyword) ? Holds::schema : Holds::nothing;
}

}  // namespace

PointedAt pointed_at(const Json& root, std::string_view path) {
  PointedAt made{.value = &root};
  Holds holds = Holds::schema;
  while (made.value != nullptr && !path.empty()) {
    if (path.front() != '/') return {};
    path.remove_prefix(1);
    const std::string_view name = path.substr(0, path.find('/'));
    path.remove_prefix(name.size());
    made.value = step_into(*made.value, name);
    if (made.value == nullptr || holds == Holds::nothing) continue;
    holds = holds == Holds::schemas ? Holds::schema : kind_of(name, *made.value);
  }
  made.is_schema = holds == Holds::schema;
  return made;
}

}  // namespace nibble
