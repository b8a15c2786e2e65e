// A walk over the schema; every keyword is in a table or refused. What becomes of keywords together
// is told by schema_grammar.
#include "grammar/schema_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "grammar/schema_facts.h"

namespace nibble {

namespace {

/// The kind of check for the value of a keyword.
enum class Value : uint8_t {
  any,
  schema,
  schema_map,
  schema_list,
  schema_or_list,
  names,
  names_map,     // names of properties to names of others
  names_or_map,  // to those, or to schemas
  number,
  count,
};

struct Keyword {
  std::string_view name;
  Value value = Value::any;
};

// JSON Schema 2020-12, and draft 7's names.
constexpr std::array kKeywords = std::to_array<Keyword>({
    {"type"},
    {"properties", Value::schema_map},
    {"required", Value::names},
    {"additionalProperties", Value::schema},
    {"patternProperties", Value::schema_map},
    {"propertyNames", Value::schema},
    {"minProperties", Value::count},
    {"maxProperties", Value::count},
    {"items", Value::schema_or_list},
    {"additionalItems", Value::schema},
    {"unevaluatedItems", Value::schema},
    {"unevaluatedProperties", Value::schema},
    {"uniqueItems"},
    {"prefixItems", Value::schema_list},
    {"minItems", Value::count},
    {"maxItems", Value::count},
    {"minLength", Value::count},
    {"maxLength", Value::count},
    {"pattern"},
    {"format"},
    {"contentEncoding"},
    {"contentMediaType"},
    {"contentSchema", Value::schema},
    {"minimum", Value::number},
    {"maximum", Value::number},
    {"exclusiveMinimum", Value::number},
    {"exclusiveMaximum", Value::number},
    {"multipleOf", Value::number},
    {"enum"},
    {"const"},
    {"anyOf", Value::schema_list},
    {"oneOf", Value::schema_list},
    {"allOf", Value::schema_list},
    {"$ref"},
    {"$defs", Value::schema_map},
    {"definitions", Value::schema_map},
    // They say nothing about what is valid.
    {"title"},
    {"description"},
    {"default"},
    {"examples"},
    {"example"},
    {"deprecated"},
    {"readOnly"},
    {"writeOnly"},
    {"$schema"},
    {"$id"},
    {"$comment"},
    {"not", Value::schema},
    {"if", Value::schema},
    {"then", Value::schema},
    {"else", Value::schema},
    {"contains", Value::schema},
    {"minContains", Value::count},
    {"maxContains", Value::count},
    {"dependentRequired", Value::names_map},
    {"dependentSchemas", Value::schema_map},
    {"dependencies", Value::names_or_map},
    {"strict"},
    {"discriminator"},
    {"nullable"},
    {"$anchor"},
    {"$dynamicAnchor"},
});

class SchemaWalk {
 public:
  explicit SchemaWalk(const SchemaLimits& limits) : limits_(limits) {}
  Result<void> schema(const Json& schema, const std::string& at, int depth);

 private:
  Result<void> keyword(const Keyword& keyword, const Json& value, const std::string& at, int depth);
  Result<void> schemas(Value kind, const Json& value, const std::string& at, int depth);
  Result<void> dependencies(Value kind, const Json& value, const std::string& at, int depth);

  SchemaLimits limits_;
  int nodes_ = 0;
};

bool is_names(const Json& value) {
  return value.is_array() && std::ranges::all_of(value.as_array(), &Json::is_string);
}

/// Keywords whose values are schemas.
Result<void> SchemaWalk::schemas(Value kind, const Json& value, const std::string& at, int depth) {
  if (kind == Value::schema || (kind == Value::schema_or_list && !value.is_array()))
    return schema(value, at, depth + 1);
  if (kind == Value::schema_map) {
    if (!value.is_object()) return schema_refusal(at, "an object of schemas");
    for (const Json::Member& member : value.as_object())
      TRY(schema(member.value, concat(at, "/", escaped_name(member.key)), depth + 1));
    return {};
  }
  if (!value.is_array() || value.as_array().empty()) return schema_refusal(at, "a list of schemas");
  for (size_t i = 0; i < value.as_array().size(); ++i)
    TRY(schema(value.as_array()[i], concat(at, "/", i), depth + 1));
  return {};
}

Result<void> SchemaWalk::dependencies(Value kind, const Json& value, const std::string& at,
                                      int depth) {
  if (!value.is_object()) return schema_refusal(at, "an object of names");
  for (const Json::Member& member : value.as_object()) {
    const std::string place = concat(at, "/", escaped_name(member.key));
    if (kind == Value::names_or_map && !member.value.is_array())
      TRY(schema(member.value, place, depth + 1));
    else if (!is_names(member.value))
      return schema_refusal(place, "a list of names");
  }
  return {};
}

Result<void> SchemaWalk::keyword(const Keyword& keyword, const Json& value, const std::string& at,
                                 int depth) {
  switch (keyword.value) {
    case Value::any:
      break;
    case Value::names:
      if (!is_names(value)) return schema_refusal(at, "a list of names");
      break;
    case Value::names_map:
    case Value::names_or_map:
      return dependencies(keyword.value, value, at, depth);
    case Value::number:
      if (!value.is_number()) return schema_refusal(at, "a number");
      break;
    case Value::count: {
      const double count = value.is_number() ? value.as_double() : -1;
      if (count < 0 || count > static_cast<double>(limits_.count_max) || count != std::floor(count))
        return schema_refusal(at, concat("a whole number from 0 to ", limits_.count_max));
      break;
    }
    default:
      return schemas(keyword.value, value, at, depth);
  }
  if (keyword.name == "enum" &&
      (!value.is_array() || value.as_array().empty() || value.as_array().size() > limits_.enum_max))
    return schema_refusal(at, concat("a list of 1 to ", limits_.enum_max, " values"));
  return {};
}

Result<void> SchemaWalk::schema(const Json& schema, const std::string& at, int depth) {
  if (schema.is_bool()) return {};
  if (!schema.is_object()) return schema_refusal(at, "a schema: an object, true or false");
  if (depth > limits_.depth_max)
    return schema_refusal(at, concat("at most ", limits_.depth_max, " levels"));
  if (++nodes_ > limits_.nodes_max)
    return schema_refusal(at, concat("at most ", limits_.nodes_max, " schemas in all"));
  for (const Json::Member& member : schema.as_object()) {
    const std::string place = concat(at, "/", escaped_name(member.key));
    const auto known =
        std::ranges::find_if(kKeywords, [&](const Keyword& k) { return k.name == member.key; });
    if (known != kKeywords.end())
      TRY(keyword(*known, member.value, place, depth));
    else if (!member.key.starts_with("x-"))
      return schema_refusal(place, "keywords that are enforced here; this one is not");
  }
  return {};
}

}  // namespace

Result<void> check_schema(const Json& schema, const SchemaLimits& limits) {
  return SchemaWalk(limits).schema(schema, "", 1);
}

}  // namespace nibble
