// Reads from schemas that hold together the items of lists and the names of objects.
#include <algorithm>

#include "grammar/schema_facts.h"

namespace nibble {

bool says(const Alternative& parts, std::initializer_list<const char*> keywords) {
  for (const SchemaPart& part : parts)
    for (const char* keyword : keywords)
      if (part.place.schema->find(keyword) != nullptr) return true;
  return false;
}

bool unique_items(const Alternative& parts) {
  return std::ranges::any_of(parts, [](const SchemaPart& part) {
    const Json* unique = part.place.schema->find("uniqueItems");
    return unique != nullptr && *unique == Json(true);
  });
}

bool tuples(const Alternative& parts) {
  return std::ranges::any_of(parts, [](const SchemaPart& part) {
    const Json* items = part.place.schema->find("items");
    return part.place.schema->find("prefixItems") != nullptr ||
           (items != nullptr && items->is_array());
  });
}

Result<ItemCounts> item_counts(const Alternative& parts) {
  ItemCounts made;
  size_t holders = 0;  // schemas that speak of items
  std::string unevaluated;
  for (const SchemaPart& part : parts) {
    const Json& schema = *part.place.schema;
    if (const Json* b = schema.find("minItems"))
      made.least = std::max(made.least, static_cast<int64_t>(b->as_double()));
    if (const Json* b = schema.find("maxItems")) {
      const auto bound = static_cast<int64_t>(b->as_double());
      made.most = std::min(made.most.value_or(bound), bound);
    }
    const Json* items = schema.find("items");
    if (items == nullptr || !items->is_array()) items = schema.find("prefixItems");
    if (items != nullptr) made.own = std::max(made.own, items->as_array().size());
    if (says({part}, {"items", "prefixItems", "unevaluatedItems"})) ++holders;
    if (schema.find("unevaluatedItems") != nullptr)
      unevaluated = concat(part.place.at, "/unevaluatedItems");
  }
  for (const SchemaPart& part : parts) {
    const Json* unique = part.place.schema->find("uniqueItems");
    if (unique != nullptr && *unique == Json(true) && (!made.most || *made.most > 1))
      return schema_refusal(concat(part.place.at, "/uniqueItems"),
                            "items of enum, const, boolean or null: of others it is not enforced");
  }
  if (!unevaluated.empty() && holders > 1)
    return schema_refusal(unevaluated, "no other schema of the items beside it");
  return made;
}

std::vector<std::string> names_of(const Alternative& parts) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const SchemaPart& part : parts)
    if (const Json* properties = part.place.schema->find("properties"))
      for (const Json::Member& member : properties->as_object()) add(member.key);
  for (const SchemaPart& part : parts)
    if (const Json* required = part.place.schema->find("required"))
      for (const Json& name : required->as_array()) add(name.as_string());
  return names;
}

bool is_required(const Alternative& parts, const std::string& name) {
  for (const SchemaPart& part : parts)
    if (const Json* required = part.place.schema->find("required"))
      for (const Json& other : required->as_array())
        if (other.as_string() == name) return true;
  return false;
}

std::vector<std::string> name_patterns(const Alternative& parts) {
  std::vector<std::string> made;
  for (const SchemaPart& part : parts)
    if (const Json* found = part.place.schema->find("patternProperties"))
      for (const Json::Member& member : found->as_object())
        if (std::ranges::find(made, member.key) == made.end()) made.push_back(member.key);
  return made;
}

bool holds_others(const Alternative& parts) {
  return says(parts, {"additionalProperties", "unevaluatedProperties"}) ||
         !says(parts, {"properties", "patternProperties"});
}

bool may_hold(const Alternative& parts, const std::string& name) {
  return holds_others(parts) || !name_patterns(parts).empty() ||
         std::ranges::count(names_of(parts), name) > 0;
}

Together name_schemas(const Alternative& parts) {
  Together made;
  for (const SchemaPart& part : parts)
    if (const Json* names = part.place.schema->find("propertyNames"))
      made.push_back({names, concat(part.place.at, "/propertyNames")});
  return made;
}

}  // namespace nibble
