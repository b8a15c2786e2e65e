// A walk over the schema; every keyword is in a table or refused. Whether the alternatives of oneOf
// exclude each other is told by the compiler.
#include "grammar/schema_check.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace nibble {

namespace {

/// How the value of a keyword is looked at.
enum class Value : uint8_t { any, schema, schema_map, schema_list, schema_or_flag, count };

struct Keyword {
  std::string_view name;
  Value value = Value::any;
};

// JSON Schema 2020-12, and draft 7's names.
constexpr std::array kKeywords = std::to_array<Keyword>({
    {"type"},
    {"properties", Value::schema_map},
    {"required"},
    {"additionalProperties", Value::schema_or_flag},
    {"patternProperties", Value::schema_map},
    {"propertyNames", Value::schema},
    {"minProperties", Value::count},
    {"maxProperties", Value::count},
    {"items", Value::schema_or_flag},
    {"prefixItems", Value::schema_list},
    {"minItems", Value::count},
    {"maxItems", Value::count},
    {"minLength", Value::count},
    {"maxLength", Value::count},
    {"pattern"},
    {"format"},
    {"minimum"},
    {"maximum"},
    {"exclusiveMinimum"},
    {"exclusiveMaximum"},
    {"multipleOf"},
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
    {"strict"},
});

constexpr std::array kFormats = std::to_array<std::string_view>(
    {"email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid", "uri",
     "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"});

/// A member's name inside a JSON pointer (RFC 6901).
std::string escaped(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

class SchemaWalk {
 public:
  SchemaWalk(const Json& root, const SchemaLimits& limits) : root_(root), limits_(limits) {}
  Result<void> schema(const Json& schema, const std::string& at, int depth);

 private:
  Result<void> keyword(const Keyword& keyword, const Json& value, const std::string& at, int depth);
  Result<void> combinations(const Json& schema, const std::string& at) const;
  Result<void> reference(const Json& value, const std::string& at) const;
  static Error refusal(const std::string& at, std::string_view why) {
    return make_error(
        ErrorCode::invalid_argument,
        {.what = concat("the schema at ", at.empty() ? "#" : concat("#", at)), .expected = why});
  }

  const Json& root_;
  SchemaLimits limits_;
  int nodes_ = 0;
};

Result<void> SchemaWalk::reference(const Json& value, const std::string& at) const {
  const bool local = value.is_string() && value.as_string().starts_with("#");
  if (!local) return refusal(at, "a reference inside the schema, \"#/...\"");
  const Json* target = &root_;
  std::string_view path = std::string_view(value.as_string()).substr(1);
  while (target != nullptr && !path.empty()) {
    if (path.front() != '/') return refusal(at, "a JSON pointer");
    path.remove_prefix(1);
    const std::string_view name = path.substr(0, path.find('/'));
    path.remove_prefix(name.size());
    const Json* next = nullptr;
    if (target->is_object())
      for (const Json::Member& member : target->as_object())
        if (escaped(member.key) == name) next = &member.value;
    target = next;
  }
  if (target == nullptr) return refusal(at, "a reference to something that is there");
  return {};
}

Result<void> SchemaWalk::combinations(const Json& schema, const std::string& at) const {
  const bool shaped = schema.find("pattern") != nullptr || schema.find("format") != nullptr;
  for (const char* length : {"minLength", "maxLength"})
    if (shaped && schema.find(length) != nullptr)
      return refusal(concat(at, "/", length), "no length beside pattern or format");
  const Json* multiple = schema.find("multipleOf");
  const Json* type = schema.find("type");
  const bool whole = type != nullptr && *type == Json("integer") && multiple != nullptr &&
                     multiple->is_int() && multiple->as_int() > 0;
  if (multiple != nullptr && !whole)
    return refusal(concat(at, "/multipleOf"), "a whole number, of the type integer");
  return {};
}

Result<void> SchemaWalk::keyword(const Keyword& keyword, const Json& value, const std::string& at,
                                 int depth) {
  switch (keyword.value) {
    case Value::any:
      break;
    case Value::schema_or_flag:
      if (value.is_bool()) return {};
      [[fallthrough]];
    case Value::schema:
      return schema(value, at, depth + 1);
    case Value::schema_map:
      if (!value.is_object()) return refusal(at, "an object of schemas");
      for (const Json::Member& member : value.as_object())
        TRY(schema(member.value, concat(at, "/", escaped(member.key)), depth + 1));
      return {};
    case Value::schema_list:
      if (!value.is_array() || value.as_array().empty()) return refusal(at, "a list of schemas");
      for (size_t i = 0; i < value.as_array().size(); ++i)
        TRY(schema(value.as_array()[i], concat(at, "/", i), depth + 1));
      break;
    case Value::count:
      if (!value.is_int() || value.as_int() < 0 || value.as_int() > limits_.count_max)
        return refusal(at, concat("a whole number from 0 to ", limits_.count_max));
      break;
  }
  if (keyword.name == "$ref") return reference(value, at);
  if (keyword.name == "allOf" && value.as_array().size() > 1)
    return refusal(at, "one schema (merge them)");
  if (keyword.name == "enum" &&
      (!value.is_array() || value.as_array().empty() || value.as_array().size() > limits_.enum_max))
    return refusal(at, concat("a list of 1 to ", limits_.enum_max, " values"));
  if (keyword.name == "format" &&
      (!value.is_string() || std::ranges::find(kFormats, value.as_string()) == kFormats.end()))
    return refusal(at, concat("a format that is enforced, such as ", kFormats[3]));
  return {};
}

Result<void> SchemaWalk::schema(const Json& schema, const std::string& at, int depth) {
  if (schema.is_bool() && schema.as_bool()) return {};
  if (!schema.is_object()) return refusal(at, "a schema: an object, or true");
  if (depth > limits_.depth_max)
    return refusal(at, concat("at most ", limits_.depth_max, " levels"));
  if (++nodes_ > limits_.nodes_max)
    return refusal(at, concat("at most ", limits_.nodes_max, " schemas in all"));
  for (const Json::Member& member : schema.as_object()) {
    const std::string place = concat(at, "/", escaped(member.key));
    const auto known =
        std::ranges::find_if(kKeywords, [&](const Keyword& k) { return k.name == member.key; });
    const bool off = member.value == Json(false);  // "uniqueItems": false asks for nothing
    if (known != kKeywords.end())
      TRY(keyword(*known, member.value, place, depth));
    else if (!off)
      return refusal(place, "keywords that are enforced here; this one is not");
  }
  return combinations(schema, at);
}

}  // namespace

Result<void> check_schema(const Json& schema, const SchemaLimits& limits) {
  return SchemaWalk(schema, limits).schema(schema, "", 1);
}

}  // namespace nibble
