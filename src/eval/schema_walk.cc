// One walk over all subschemas; from each one, a walk over what applies to the same value.
#include "eval/schema_walk.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>

namespace nibble {
namespace {

using Names = std::initializer_list<std::string_view>;

constexpr int kStepsMax = 100'000;
constexpr std::array<std::string_view, 10> kLaterKeywords = {
    "prefixItems",      "unevaluatedItems", "unevaluatedProperties", "dependentRequired",
    "dependentSchemas", "minContains",      "maxContains",           "$dynamicRef",
    "$recursiveRef",    "$anchor"};

Error wrong(std::string_view what, std::string_view expected, std::string_view found) {
  return make_error(
      ErrorCode::invalid_argument,
      {.what = std::string(what), .expected = std::string(expected), .found = std::string(found)});
}

/// The part that "#/a/b" leads to; nullptr: there is none.
const Json* part_at(const Json& root, std::string_view reference) {
  if (reference == "#") return &root;
  if (!reference.starts_with("#/")) return nullptr;
  const Json* at = &root;
  reference.remove_prefix(1);
  while (!reference.empty()) {
    reference.remove_prefix(1);  // the slash
    const size_t end = std::min(reference.find('/'), reference.size());
    std::string key;
    for (size_t i = 0; i < end; ++i) {
      const bool escaped = reference[i] == '~' && i + 1 < end;
      key += !escaped ? reference[i] : reference[++i] == '1' ? '/' : '~';
    }
    reference.remove_prefix(end);
    size_t index = 0;
    const auto read = std::from_chars(key.data(), key.data() + key.size(), index);
    if (at->is_array())
      at = read.ec == std::errc() && index < at->as_array().size() ? &at->as_array()[index]
                                                                   : nullptr;
    else
      at = at->find(key);
    if (at == nullptr) return nullptr;
  }
  return at;
}

using Visit = std::function<Result<void>(const Json&)>;

Result<void> visit_member(const Json& schema, std::string_view key, const Visit& visit) {
  const Json* member = schema.find(key);
  if (member != nullptr && member->is_object()) TRY(visit(*member));
  if (member != nullptr && member->is_array())
    for (const Json& each : member->as_array()) TRY(visit(each));
  return {};
}

/// All subschemas, this one included.
Result<void> visit_all(const Json& schema, const Visit& visit) {
  if (!schema.is_object()) return {};
  TRY(visit(schema));
  const Visit deeper = [&](const Json& each) { return visit_all(each, visit); };
  for (const auto key :
       Names{"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "items", "additionalItems",
             "contains", "additionalProperties", "propertyNames"})
    TRY(visit_member(schema, key, deeper));
  for (const auto key :
       Names{"properties", "patternProperties", "definitions", "$defs", "dependencies"})
    if (const Json* named = schema.find(key); named != nullptr && named->is_object())
      for (const auto& [name, each] : named->as_object()) TRY(deeper(each));
  return {};
}

/// Follows what applies to the same value, with the references that led here.
class InPlace {
 public:
  InPlace(const Json& root, std::string_view what) : root_(root), what_(what) {}

  Result<void> follow(const Json& schema) {
    if (++steps_ > kStepsMax)
      return wrong(what_, "a schema whose references can be followed", "too many of them");
    if (!schema.is_object()) return {};
    if (const Json* reference = schema.find("$ref")) TRY(follow_reference(*reference));
    for (const auto key : Names{"allOf", "anyOf", "oneOf", "not", "if", "then", "else"})
      TRY(visit_member(schema, key, [this](const Json& each) { return follow(each); }));
    return {};
  }

 private:
  Result<void> follow_reference(const Json& reference) {
    const Json* target = reference.is_string() ? part_at(root_, reference.as_string()) : nullptr;
    if (target == nullptr)
      return wrong(what_, "references into the schema, such as #/$defs/NAME",
                   reference.dump().substr(0, 100));
    if (std::ranges::find(open_, target) != open_.end())
      return wrong(what_, "references that end",
                   concat(reference.dump().substr(0, 100), " leads back to itself"));
    open_.push_back(target);
    TRY(follow(*target));
    open_.pop_back();
    return {};
  }

  const Json& root_;
  std::string_view what_;
  std::vector<const Json*> open_;
  int steps_ = 0;
};

}  // namespace

Result<void> check_schema_form(const Json& schema, std::string_view what) {
  if (schema.is_bool()) return {};
  if (!schema.is_object()) return wrong(what, "a JSON Schema: an object", schema.type_name());
  InPlace in_place(schema, what);
  return visit_all(schema, [&](const Json& each) -> Result<void> {
    for (const auto& [key, value] : each.as_object())
      if (std::ranges::find(kLaterKeywords, key) != kLaterKeywords.end())
        return wrong(what, "keywords of JSON Schema draft 7", Json(key).dump());
    return in_place.follow(each);
  });
}

bool has_patterns(const Json& schema) {
  bool found = false;
  const auto walked = visit_all(schema, [&](const Json& each) -> Result<void> {
    found = found || each.find("pattern") != nullptr || each.find("patternProperties") != nullptr;
    return {};
  });
  return found || !walked.ok();
}

}  // namespace nibble
