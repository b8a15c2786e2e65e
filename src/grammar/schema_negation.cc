// A table of keywords, each with its contrary. A keyword that speaks of one type is met by values
// of all others, so that its contrary names the type.
#include "grammar/schema_negation.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "grammar/schema_facts.h"

namespace nibble {

namespace {

using Maybe = std::optional<Json>;

constexpr int kDepthMax = 12;       // of schemas inside schemas and of references
constexpr size_t kTextsMax = 64;    // in an enum
constexpr size_t kOptionsMax = 16;  // of one keyword

constexpr std::array kTypes =
    std::to_array<std::string_view>({"null", "boolean", "number", "string", "array", "object"});

// They say nothing of values, or only beside another.
constexpr std::array kSilent = std::to_array<std::string_view>(
    {"title",          "description", "default",       "examples", "example",
     "deprecated",     "readOnly",    "writeOnly",     "$schema",  "$id",
     "$comment",       "strict",      "discriminator", "nullable", "$anchor",
     "$dynamicAnchor", "$defs",       "definitions",   "then",     "else",
     "minContains",    "maxContains"});

Json list_of(const char* keyword, Json::Array schemas) {
  return json_object({{keyword, Json(std::move(schemas))}});
}

Json typed(const char* type, const char* keyword, Json value) {
  return json_object({{"type", Json(type)}, {keyword, std::move(value)}});
}

class Negation {
 public:
  explicit Negation(const Json& root) : root_(root) {}
  Maybe of(const Json& schema, int depth);

 private:
  Maybe keyword(const Json& schema, const Json::Member& member, int depth);
  Maybe combined(const std::string& keyword, const Json& value, int depth);
  Maybe members(const Json& properties, int depth);
  Maybe condition(const Json& schema, int depth);
  Maybe not_all_items(const Json& item, int depth);
  Maybe reference(const Json& value, int depth);

  const Json& root_;
};

Maybe not_typed(const Json& value) {
  std::vector<std::string_view> names;
  for (const Json& name : value.is_array() ? value.as_array() : Json::Array{value}) {
    if (!name.is_string()) return {};
    for (const std::string_view known : kTypes)
      if (name.as_string() == known) names.push_back(known);
    // Numbers that are no integers would be left; they are left out too.
    if (name.as_string() == "integer") names.emplace_back("number");
  }
  return types_without(names);
}

/// The numbers between those that are listed.
Json between(std::vector<double> numbers) {
  std::ranges::sort(numbers);
  numbers.erase(std::ranges::unique(numbers).begin(), numbers.end());
  Json::Array gaps;
  for (size_t i = 0; i <= numbers.size(); ++i) {
    Json gap = json_object({{"type", Json("number")}});
    if (i > 0) gap.set("exclusiveMinimum", Json(numbers[i - 1]));
    if (i < numbers.size()) gap.set("exclusiveMaximum", Json(numbers[i]));
    gaps.push_back(std::move(gap));
  }
  return list_of("anyOf", std::move(gaps));
}

/// All values but these. Lists and objects only if they are empty.
Maybe not_listed(const Json::Array& values) {
  std::vector<std::string_view> seen;
  std::vector<std::string> texts;
  std::vector<double> numbers;
  Json::Array options;
  Json::Array booleans = {Json(true), Json(false)};
  for (const Json& value : values) {
    if (value.is_null()) seen.emplace_back("null");
    if (value.is_bool()) std::erase(booleans, value);
    if (value.is_string()) texts.push_back(value.as_string());
    if (value.is_number()) numbers.push_back(value.as_double());
    if ((value.is_array() && !value.as_array().empty()) ||
        (value.is_object() && !value.as_object().empty()))
      return {};
    if (value.is_array()) options.push_back(typed("array", "minItems", Json(1)));
    if (value.is_array()) seen.emplace_back("array");
    if (value.is_object()) options.push_back(typed("object", "minProperties", Json(1)));
    if (value.is_object()) seen.emplace_back("object");
  }
  if (texts.size() > kTextsMax || numbers.size() > kOptionsMax) return {};
  if (booleans.size() < 2) seen.emplace_back("boolean");
  if (booleans.size() == 1) options.push_back(json_object({{"const", booleans[0]}}));
  if (!texts.empty()) seen.emplace_back("string");
  if (!texts.empty()) options.push_back(typed("string", "pattern", Json(pattern_without(texts))));
  if (!numbers.empty()) seen.emplace_back("number");
  if (!numbers.empty()) options.push_back(between(numbers));
  options.push_back(types_without(seen));
  return list_of("anyOf", std::move(options));
}

/// A value on the other side of a bound.
Maybe not_bounded(std::string_view keyword, const Json& value) {
  if (!value.is_number()) return {};
  constexpr std::array<std::array<const char*, 3>, 10> kBounds = {{
      {"minimum", "exclusiveMaximum", "number"},
      {"maximum", "exclusiveMinimum", "number"},
      {"exclusiveMinimum", "maximum", "number"},
      {"exclusiveMaximum", "minimum", "number"},
      {"minLength", "maxLength", "string"},
      {"maxLength", "minLength", "string"},
      {"minItems", "maxItems", "array"},
      {"maxItems", "minItems", "array"},
      {"minProperties", "maxProperties", "object"},
      {"maxProperties", "minProperties", "object"},
  }};
  for (const auto& [name, other, type] : kBounds) {
    if (name != keyword) continue;
    if (std::string_view(type) == "number") return typed(type, other, value);
    const double next = value.as_double() + (keyword.starts_with("min") ? -1 : 1);
    if (next < 0) return Json(false);
    return typed(type, other, Json(static_cast<int64_t>(next)));
  }
  return {};
}

/// Only patterns of which it is plain what they begin at.
Maybe not_matched(const Json& value) {
  if (!value.is_string()) return {};
  const std::string& pattern = value.as_string();
  if (pattern.find("(?=") != std::string::npos || pattern.find("(?!") != std::string::npos)
    return {};
  const size_t anchor = pattern.find('^');
  if (anchor == 0 && pattern.find('|') == std::string::npos &&
      pattern.find('^', 1) == std::string::npos)
    return typed("string", "pattern", Json(concat("^(?!", pattern.substr(1), ")")));
  if (anchor != std::string::npos) return {};
  return typed("string", "pattern", Json(concat("^(?![\\s\\S]*(?:", pattern, "))")));
}

Maybe not_required(const Json& value) {
  Json::Array options;
  if (!value.is_array() || value.as_array().size() > kOptionsMax) return {};
  for (const Json& name : value.as_array()) {
    if (!name.is_string()) return {};
    options.push_back(typed("object", "propertyNames",
                            json_object({{"pattern", Json(pattern_without({name.as_string()}))}})));
  }
  return options.empty() ? Json(false) : list_of("anyOf", std::move(options));
}

Maybe Negation::members(const Json& properties, int depth) {
  if (!properties.is_object() || properties.as_object().size() > kOptionsMax) return {};
  Json::Array options;
  for (const Json::Member& member : properties.as_object()) {
    auto other = of(member.value, depth + 1);
    if (!other) return {};
    if (*other == Json(false)) continue;
    Json option = typed("object", "required", Json(Json::Array{Json(member.key)}));
    option.set("properties", json_object({{member.key, *std::move(other)}}));
    options.push_back(std::move(option));
  }
  return options.empty() ? Json(false) : list_of("anyOf", std::move(options));
}

Maybe Negation::combined(const std::string& keyword, const Json& value, int depth) {
  if (!value.is_array() || value.as_array().size() > kOptionsMax) return {};
  Json::Array others;
  for (const Json& part : value.as_array()) {
    auto other = of(part, depth + 1);
    if (!other) return {};
    others.push_back(*std::move(other));
  }
  return list_of(keyword == "allOf" ? "anyOf" : "allOf", std::move(others));
}

/// Where the condition holds, what follows from it does not; else what follows otherwise does not.
Maybe Negation::condition(const Json& schema, int depth) {
  const Json& when = *schema.find("if");
  const auto without = of(when, depth + 1);
  Json::Array options;
  for (const char* name : {"then", "else"}) {
    const Json* follows = schema.find(name);
    if (follows == nullptr) continue;
    auto other = of(*follows, depth + 1);
    if (!other || !without) return {};
    const bool then = std::string_view(name) == "then";
    options.push_back(list_of("allOf", Json::Array{then ? when : *without, *std::move(other)}));
  }
  return options.empty() ? Json(false) : list_of("anyOf", std::move(options));
}

Maybe Negation::reference(const Json& value, int depth) {
  const Json schema = json_object({{"$ref", value}});
  const auto found = SchemaFacts(root_).target({&schema, ""});
  if (!found.ok()) return {};
  return of(*found.value().schema, depth + 1);
}

/// A list whose first item is none: of the others nothing is said.
Maybe Negation::not_all_items(const Json& item, int depth) {
  auto other = of(item, depth + 1);
  if (!other || *other == Json(false)) return other;
  Json made = typed("array", "minItems", Json(1));
  made.set("prefixItems", Json(Json::Array{*std::move(other)}));
  return made;
}

Maybe Negation::keyword(const Json& schema, const Json::Member& member, int depth) {
  const auto& [name, value] = member;
  if (name == "type") return not_typed(value);
  if (name == "const") return not_listed({value});
  if (name == "enum" && value.is_array()) return not_listed(value.as_array());
  if (name == "pattern") return not_matched(value);
  if (name == "required") return not_required(value);
  if (name == "properties") return members(value, depth);
  if (name == "allOf" || name == "anyOf") return combined(name, value, depth);
  if (name == "not") return value;
  if (name == "if") return condition(schema, depth);
  if (name == "$ref") return reference(value, depth);
  if (name == "contains" && schema.find("minContains") == nullptr &&
      schema.find("maxContains") == nullptr)
    if (auto other = of(value, depth + 1)) return typed("array", "items", *std::move(other));
  if (name == "items" && schema.find("prefixItems") == nullptr) return not_all_items(value, depth);
  return not_bounded(name, value);
}

Maybe Negation::of(const Json& schema, int depth) {
  if (schema.is_bool()) return Json(!schema.as_bool());
  if (!schema.is_object() || depth > kDepthMax) return {};
  Json::Array options;
  for (const Json::Member& member : schema.as_object()) {
    if (std::ranges::find(kSilent, member.key) != kSilent.end() || member.key.starts_with("x-"))
      continue;
    auto other = keyword(schema, member, depth);
    if (!other) return {};
    if (*other != Json(false)) options.push_back(*std::move(other));
  }
  if (options.empty()) return Json(false);
  return options.size() == 1 ? std::move(options[0]) : list_of("anyOf", std::move(options));
}

}  // namespace

std::string pattern_without(const std::vector<std::string>& texts) {
  constexpr const char* kHex = "0123456789abcdef";
  std::string out = "^(?!(?:";
  for (const std::string& text : texts) {
    if (&text != &texts.front()) out += '|';
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      const bool plain =
          byte >= 0x80 || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
      if (plain)
        out += c;
      else
        out += {'\\', 'x', kHex[byte / 16], kHex[byte % 16]};
    }
  }
  return out + ")$)";
}

Json types_without(const std::vector<std::string_view>& names) {
  Json::Array others;
  for (const std::string_view type : kTypes)
    if (std::ranges::find(names, type) == names.end()) others.push_back(Json(type));
  return others.empty() ? Json(false) : json_object({{"type", Json(std::move(others))}});
}

std::optional<Json> negated(const Json& schema, const Json& root) {
  return Negation(root).of(schema, 0);
}

}  // namespace nibble
