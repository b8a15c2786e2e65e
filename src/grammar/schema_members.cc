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
                            "keywords that are enforced here; this one is not");
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

Together name_schemas(const Alternative& parts) {
  Together made;
  for (const SchemaPart& part : parts)
    if (const Json* names = part.place.schema->find("propertyNames"))
      made.push_back({names, concat(part.place.at, "/propertyNames")});
  return made;
}

}  // namespace nibble
