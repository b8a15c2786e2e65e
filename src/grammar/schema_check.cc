// A walk over the schema; what a keyword says is enforced or refused. What becomes of keywords
// together is told by schema_grammar.
#include "grammar/schema_check.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>
#include <string_view>

#include "base/edit_distance.h"
#include "grammar/schema_facts.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_pointer.h"

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
});
// A schema may consist of these alone, which say nothing of values.
constexpr std::array kAnnotations = std::to_array<std::string_view>(
    {"title", "description", "default", "examples", "example", "deprecated", "readOnly",
     "writeOnly", "$schema", "$id", "$comment", "strict", "discriminator", "nullable", "$anchor",
     "$dynamicAnchor"});
// A draft of JSON Schema gives these a meaning that is not enforced here.
constexpr std::array kRefused = std::to_array<std::string_view>(
    {"$dynamicRef", "$recursiveRef", "extends", "disallow", "divisibleBy"});

const Keyword* keyword_of(std::string_view name) {
  const auto* const found = std::ranges::find(kKeywords, name, &Keyword::name);
  return found != kKeywords.end() ? &*found : nullptr;
}

/// The keyword that a name seems to be a misspelling of; empty: there is none. Names that begin
/// with "x-" or a sign other than "$" are chosen not to be keywords.
std::string_view misspelt_keyword(std::string_view name) {
  constexpr size_t kNameBytesMax = 32;  // beyond, nothing is near
  constexpr size_t kShort = 4, kLong = 8;
  const bool letter = std::isalpha(static_cast<unsigned char>(name.front())) != 0;
  if (name.size() > kNameBytesMax || name.starts_with("x-")) return {};
  if (!letter && name.front() != '$') return {};
  for (const Keyword& keyword : kKeywords) {
    if (keyword.name.size() < kShort || keyword.name == "then" || keyword.name == "else") continue;
    const size_t near = keyword.name.size() < kLong ? 1 : 2;
    const auto [shorter, longer] = std::minmax({name.size(), keyword.name.size()});
    if (longer - shorter <= near && edit_distance(name, keyword.name) <= near) return keyword.name;
  }
  return {};
}

class SchemaWalk {
 public:
  SchemaWalk(const Json& root, const SchemaLimits& limits) : root_(root), limits_(limits) {}
  Result<void> schema(const Json& schema, const std::string& at, int depth);

 private:
  Result<void> keyword(const Keyword& keyword, const Json& value, const std::string& at, int depth);
  Result<void> schemas(Value kind, const Json& value, const std::string& at, int depth);
  Result<void> dependencies(Value kind, const Json& value, const std::string& at, int depth);
  Result<void> reference(const Json& value, int depth);

  const Json& root_;
  SchemaLimits limits_;
  int nodes_ = 0;
  std::set<std::string> targets_;  // of references, where no keyword leads
  std::string address_;  // of the innermost draft 4 address around a schema, below the root
};

/// JSON Schema takes a keyword that it does not know for an annotation, which says nothing of
/// values. One that is nearly the name of a keyword was meant to be it.
Result<void> unknown(const Json::Member& member, const std::string& at) {
  if (is_one_of(kRefused, member.key))
    return schema_refusal(at, "keywords that are enforced here; this one is not");
  const std::string_view meant = member.key.empty() ? "" : misspelt_keyword(member.key);
  if (meant.empty()) return {};
  return schema_refusal(at, concat("a keyword of JSON Schema, such as ", meant,
                                   "; a name of your own begins with x-"));
}

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

/// A reference may lead to where no keyword does, into an annotation, and makes a schema of that.
Result<void> SchemaWalk::reference(const Json& value, int depth) {
  if (!value.is_string() || !value.as_string().starts_with('#')) return {};
  if (!address_.empty())
    return schema_refusal(address_, "no address above a reference, which drafts read differently");
  const std::string path = percent_decoded(std::string_view(value.as_string()).substr(1));
  const PointedAt target = pointed_at(root_, path);
  if (target.value == nullptr || target.is_schema || !targets_.insert(path).second) return {};
  return schema(*target.value, path, depth + 1);
}

/// Names alone that JSON Schema does not know are no schema: something else was sent, or one level
/// too many.
Result<void> says_something(const Json::Object& members, const std::string& at) {
  const auto known = [](const Json::Member& member) {
    return keyword_of(member.key) != nullptr || is_one_of(kAnnotations, member.key) ||
           is_one_of(kRefused, member.key) || member.key.starts_with("x-");
  };
  if (members.empty() || std::ranges::any_of(members, known)) return {};
  return schema_refusal(concat(at, "/", escaped_name(members.front().key)),
                        "keywords that are enforced here; this one is not");
}

Result<void> SchemaWalk::schema(const Json& schema, const std::string& at, int depth) {
  if (schema.is_bool()) return {};
  if (!schema.is_object()) return schema_refusal(at, "a schema: an object, true or false");
  if (depth > limits_.depth_max)
    return schema_refusal(at, concat("at most ", limits_.depth_max, " levels"));
  if (++nodes_ > limits_.nodes_max)
    return schema_refusal(at, concat("at most ", limits_.nodes_max, " schemas in all"));
  const std::string outer = address_;
  if (const Json* id = schema.find("id"); id != nullptr && id->is_string() && !at.empty())
    address_ = concat(at, "/id");
  TRY(says_something(schema.as_object(), at));
  for (const Json::Member& member : schema.as_object()) {
    const std::string place = concat(at, "/", escaped_name(member.key));
    if (const Keyword* known = keyword_of(member.key); known != nullptr)
      TRY(keyword(*known, member.value, place, depth));
    else
      TRY(unknown(member, place));
    if (member.key == "$ref") TRY(reference(member.value, depth));
  }
  address_ = outer;
  return {};
}

}  // namespace

Result<void> check_schema(const Json& schema, const SchemaLimits& limits) {
  return SchemaWalk(schema, limits).schema(schema, "", 1);
}

}  // namespace nibble
