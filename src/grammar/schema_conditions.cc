// A walk over all schemas inside a schema. Each condition becomes a schema that holds too.
#include "grammar/schema_conditions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "grammar/schema_addresses.h"
#include "grammar/schema_facts.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_negation.h"

namespace nibble {

namespace {

constexpr size_t kNodesMax = 20000;  // of schemas, with those that are made
constexpr size_t kContainsMax = 64;  // items that contains asks for
constexpr size_t kOptionsMax = 16;   // of oneOf where each is said without the others

bool conditional(const Json& value) {
  return mentions(
      value, {"not", "if", "dependentRequired", "dependentSchemas", "dependencies", "contains"});
}

Json list_of(const char* keyword, Json::Array schemas) {
  return json_object({{keyword, Json(std::move(schemas))}});
}

class Conditions {
 public:
  explicit Conditions(const Json& root)
      : root_(root),
        conditional_(conditional(root)),
        unevaluated_(mentions(root, {"unevaluatedProperties", "unevaluatedItems"})) {}
  Result<Json> schema(const Json& schema, const std::string& at);

 private:
  Result<Json> inner(std::string_view keyword, const Json& value, const std::string& at);
  Result<void> exclusive(const std::string& at, Json& out) const;
  Result<Json::Array> parts_of(const Json& schema, const std::string& at) const;
  Result<Json> contrary(const Json& schema, const std::string& at) const;
  Result<Json> condition(const Json& schema, const std::string& at) const;
  static Json dependency(const std::string& name, const Json& wanted);
  Result<Json> contained(const Json& schema, const std::string& at) const;

  const Json& root_;
  bool conditional_;
  bool unevaluated_;
  size_t nodes_ = 0;
};

Result<Json> Conditions::contrary(const Json& schema, const std::string& at) const {
  auto made = negated(schema, root_);
  if (made) return *std::move(made);
  return schema_refusal(at, "a schema whose contrary can be enforced; that of this one cannot");
}

Result<Json> Conditions::condition(const Json& schema, const std::string& at) const {
  const Json& when = *schema.find("if");
  const Json* then = schema.find("then");
  const Json* otherwise = schema.find("else");
  if (then == nullptr && otherwise == nullptr) return Json(true);
  Json::Array holds = {when};
  Json::Array fails = {TRY(contrary(when, concat(at, "/if")))};
  if (then != nullptr) holds.push_back(*then);
  if (otherwise != nullptr) fails.push_back(*otherwise);
  return list_of("anyOf", {list_of("allOf", std::move(holds)), list_of("allOf", std::move(fails))});
}

/// No object, one without the property, or one that has it and what is wanted with it: names of
/// others, or a schema.
Json Conditions::dependency(const std::string& name, const Json& wanted) {
  if (wanted == Json(true) || (wanted.is_array() && wanted.as_array().empty())) return Json(true);
  Json::Array names = {Json(name)};
  if (wanted.is_array())
    names.insert(names.end(), wanted.as_array().begin(), wanted.as_array().end());
  Json with = json_object({{"type", Json("object")}, {"required", Json(std::move(names))}});
  if (!wanted.is_array()) with = list_of("allOf", {std::move(with), wanted});
  const Json names_without = json_object({{"pattern", Json(pattern_without({name}))}});
  return list_of(
      "anyOf",
      {types_without({"object"}),
       json_object({{"type", Json("object")}, {"propertyNames", names_without}}), std::move(with)});
}

/// The items that are asked for come first. Where there may not be more of them, no other is one.
Result<Json> Conditions::contained(const Json& schema, const std::string& at) const {
  const Json& item = *schema.find("contains");
  const auto count = [&](const char* name, double none) {
    const Json* found = schema.find(name);
    return found != nullptr && found->is_number() ? found->as_double() : none;
  };
  const auto least = static_cast<size_t>(count("minContains", 1));
  const double most = count("maxContains", INFINITY);
  if (least > kContainsMax)
    return schema_refusal(concat(at, "/minContains"), concat("at most ", kContainsMax));
  Json others(true);
  if (most != INFINITY) others = TRY(contrary(item, concat(at, "/contains")));
  Json::Array options;
  constexpr size_t kMoreMax = 8;  // than are asked for, where their number is bounded
  const size_t last = most == INFINITY ? least : least + kMoreMax;
  for (size_t items = least; items <= last && static_cast<double>(items) <= most; ++items) {
    Json option = json_object({{"type", Json("array")}, {"items", others}});
    if (items > 0) option.set("prefixItems", Json(Json::Array(items, item)));
    if (items > 0) option.set("minItems", Json(static_cast<int64_t>(items)));
    options.push_back(std::move(option));
  }
  options.push_back(types_without({"array"}));
  return list_of("anyOf", std::move(options));
}

/// The schemas that together say what the conditions of a schema say.
Result<Json::Array> Conditions::parts_of(const Json& schema, const std::string& at) const {
  Json::Array parts;
  if (const Json* other = schema.find("not"))
    parts.push_back(TRY(contrary(*other, concat(at, "/not"))));
  if (schema.find("if") != nullptr) parts.push_back(TRY(condition(schema, at)));
  if (schema.find("contains") != nullptr) parts.push_back(TRY(contained(schema, at)));
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"})
    if (const Json* names = schema.find(keyword); names != nullptr && names->is_object())
      for (const Json::Member& member : names->as_object())
        parts.push_back(dependency(member.key, member.value));
  return parts;
}

Result<Json> Conditions::inner(std::string_view keyword, const Json& value, const std::string& at) {
  if (value.is_object() && is_one_of(kSchemaMaps, keyword)) {
    Json::Object made;
    for (const Json::Member& member : value.as_object())
      made.push_back({member.key, TRY(schema(member.value, concat(at, "/", member.key)))});
    return Json(std::move(made));
  }
  if (value.is_array() && is_one_of(kSchemaLists, keyword)) {
    Json::Array made;
    for (const Json& each : value.as_array())
      made.push_back(TRY(schema(each, concat(at, "/", made.size()))));
    return Json(std::move(made));
  }
  if (is_one_of(kSingleSchemas, keyword)) return schema(value, at);
  return value;
}

/// An alternative of oneOf that has conditions may not take what belongs to another: each is said
/// without the others.
Result<void> Conditions::exclusive(const std::string& at, Json& out) const {
  Json* one_of = out.find("oneOf");
  if (one_of == nullptr || !conditional_) return {};
  if (!conditional(*one_of) && !mentions(*one_of, {"$ref"})) return {};
  auto made = exclusive_options(*one_of, root_);
  if (!made) return schema_refusal(concat(at, "/oneOf"), "no conditions in its alternatives");
  Json::Object rest;
  for (const Json::Member& member : out.as_object())
    if (member.key != "oneOf") rest.push_back(member);
  out = Json(std::move(rest));
  Json all = out.find("allOf") != nullptr ? *out.find("allOf") : Json(Json::Array{});
  all.push_back(*std::move(made));
  out.set("allOf", std::move(all));
  return {};
}

Result<Json> Conditions::schema(const Json& asked, const std::string& at) {
  if (!asked.is_object()) return asked;
  if (++nodes_ > kNodesMax)
    return schema_refusal(at, concat("at most ", kNodesMax, " schemas with those of conditions"));
  if (unevaluated_)
    for (const char* keyword :
         {"not", "if", "dependentRequired", "dependentSchemas", "dependencies", "contains"})
      if (const Json* found = asked.find(keyword); found != nullptr && *found != Json(false))
        return schema_refusal(concat(at, "/", keyword),
                              "no conditions beside unevaluatedProperties or unevaluatedItems");
  Json source = asked;
  TRY(exclusive(at, source));
  Json::Object out;
  for (const auto& [name, value] : source.as_object())
    out.push_back({name, TRY(inner(name, value, concat(at, "/", escaped_name(name))))});
  Json made(std::move(out));
  Json::Array parts = TRY(parts_of(asked, at));
  std::erase(parts, Json(true));
  if (parts.empty()) return made;
  Json all = made.find("allOf") != nullptr ? *made.find("allOf") : Json(Json::Array{});
  for (const Json& part : parts) {
    const std::string place = concat(at, "/allOf/", all.as_array().size());
    all.push_back(TRY(schema(part, place)));
  }
  made.set("allOf", std::move(all));
  return made;
}

}  // namespace

bool mentions(const Json& value, std::initializer_list<std::string_view> names) {
  const auto inside = [&](const Json& each) { return mentions(each, names); };
  if (value.is_array()) return std::ranges::any_of(value.as_array(), inside);
  if (!value.is_object()) return false;
  return std::ranges::any_of(value.as_object(), [&](const Json::Member& member) {
    return std::ranges::find(names, member.key) != names.end() || inside(member.value);
  });
}

std::optional<Json> exclusive_options(const Json& one_of, const Json& root) {
  if (!one_of.is_array() || one_of.as_array().size() > kOptionsMax) return {};
  const Json::Array& options = one_of.as_array();
  Json::Array others;
  for (const Json& option : options) {
    auto other = negated(option, root);
    if (!other) return {};
    others.push_back(*std::move(other));
  }
  Json::Array made;
  for (size_t i = 0; i < options.size(); ++i) {
    Json::Array parts = {options[i]};
    for (size_t k = 0; k < options.size(); ++k)
      if (k != i) parts.push_back(others[k]);
    made.push_back(list_of("allOf", std::move(parts)));
  }
  return list_of("anyOf", std::move(made));
}

Result<Json> without_conditions(const Json& schema) {
  const Json plain = TRY(with_pointers(schema));
  return Conditions(plain).schema(plain, "");
}

}  // namespace nibble
