// Tells if a value is what a schema says, for enum and const beside other keywords; and if two
// schemas exclude each other, for oneOf.
#include <algorithm>
#include <cmath>

#include "grammar/number_pattern.h"
#include "grammar/schema_facts.h"

namespace nibble {

namespace {

constexpr int kDepthMax = 64;

bool whole(const Json& value) {
  return value.is_int() ||
         (value.is_double() && std::floor(value.as_double()) == value.as_double());
}

unsigned type_of(const Json& value) {
  if (value.is_null()) return kNullType;
  if (value.is_bool()) return kBooleanType;
  if (value.is_number()) return whole(value) ? kNumberType | kIntegerType : kNumberType;
  if (value.is_string()) return kStringType;
  return value.is_array() ? kArrayType : kObjectType;
}

/// Equality as JSON Schema has it: 1 is 1.0, and members have no order.
bool same(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.is_array() && b.is_array()) return std::ranges::equal(a.as_array(), b.as_array(), same);
  if (a.is_object() && b.is_object())
    return a.as_object().size() == b.as_object().size() &&
           std::ranges::all_of(a.as_object(), [&](const Json::Member& member) {
             const Json* other = b.find(member.key);
             return other != nullptr && same(member.value, *other);
           });
  return a == b;
}

bool bounds_hold(const Json& schema, const Json& value) {
  const auto count = [&](const char* least, const char* most, size_t found) {
    const Json* low = schema.find(least);
    const Json* high = schema.find(most);
    return (low == nullptr || static_cast<double>(found) >= low->as_double()) &&
           (high == nullptr || static_cast<double>(found) <= high->as_double());
  };
  if (value.is_string())
    return count("minLength", "maxLength", characters_of_text(value.as_string()).size());
  if (value.is_array()) return count("minItems", "maxItems", value.as_array().size());
  if (value.is_object()) return count("minProperties", "maxProperties", value.as_object().size());
  if (!value.is_number()) return true;
  const double number = value.as_double();
  const auto bound = [&](const char* name) { return schema.find(name); };
  if (const Json* b = bound("minimum"); b != nullptr && number < b->as_double()) return false;
  if (const Json* b = bound("maximum"); b != nullptr && number > b->as_double()) return false;
  if (const Json* b = bound("exclusiveMinimum"); b != nullptr && number <= b->as_double())
    return false;
  if (const Json* b = bound("exclusiveMaximum"); b != nullptr && number >= b->as_double())
    return false;
  const Json* step = bound("multipleOf");
  if (step == nullptr) return true;
  const double times = number / step->as_double();
  return std::fabs(times - std::round(times)) < 1e-9;
}

bool enumerated(const Json& schema, const Json& value) {
  const Json* only = schema.find("const");
  if (only != nullptr && !same(*only, value)) return false;
  const Json* options = schema.find("enum");
  return options == nullptr || std::ranges::any_of(options->as_array(), [&](const Json& option) {
           return same(option, value);
         });
}

bool declares(const Alternative& parts, const std::string& name) {
  for (const SchemaPart& part : parts)
    if (const Json* properties = part.place.schema->find("properties");
        properties != nullptr && properties->find(name) != nullptr)
      return true;
  return false;
}

/// True if objects of it hold only what it names.
bool closed(const Alternative& parts) {
  bool named = false;
  for (const SchemaPart& part : parts) {
    named = named || part.place.schema->find("properties") != nullptr;
    for (const char* keyword :
         {"additionalProperties", "patternProperties", "unevaluatedProperties"})
      if (const Json* found = part.place.schema->find(keyword);
          found != nullptr && *found != Json(false))
        return false;
  }
  return named;
}

NumberRange range_of(const Alternative& parts) {
  NumberRange range;
  for (const SchemaPart& part : parts) {
    const Json& schema = *part.place.schema;
    if (const Json* b = schema.find("minimum")) range.at_least(b->as_double(), Bound::included);
    if (const Json* b = schema.find("exclusiveMinimum"))
      range.at_least(b->as_double(), Bound::excluded);
    if (const Json* b = schema.find("maximum")) range.at_most(b->as_double(), Bound::included);
    if (const Json* b = schema.find("exclusiveMaximum"))
      range.at_most(b->as_double(), Bound::excluded);
  }
  return range;
}

}  // namespace

/// Its own keywords, without those that combine schemas.
Result<bool> SchemaFacts::own_valid(const SchemaPlace& place, const Json& value, int depth) {
  const Json& schema = *place.schema;
  const Alternative alone = {{place, {place.schema}}};
  if ((TRY(types(alone)) & type_of(value)) == 0) return false;
  if (!bounds_hold(schema, value) || !enumerated(schema, value)) return false;
  if (value.is_string())
    for (const char* keyword : kTextKeywords) {
      const Pattern pattern = TRY(pattern_at(place, keyword));
      const std::string key = concat(place.at, "/", keyword, "!");
      if (pattern && !TRY(language(key, pattern))->accepts(value.as_string())) return false;
    }
  if (value.is_array())
    for (size_t i = 0; i < value.as_array().size(); ++i)
      for (const SchemaPlace& inner : item(alone, i))
        if (!TRY(valid(inner, value.as_array()[i], depth + 1))) return false;
  if (!value.is_object()) return true;
  if (const Json* required = schema.find("required"))
    for (const Json& name : required->as_array())
      if (value.find(name.as_string()) == nullptr) return false;
  const Json* name_schema = schema.find("propertyNames");
  for (const auto& [name, member] : value.as_object()) {
    for (const SchemaPlace& inner : TRY(property(alone, name)))
      if (!TRY(valid(inner, member, depth + 1))) return false;
    if (name_schema != nullptr &&
        !TRY(valid({name_schema, concat(place.at, "/propertyNames")}, Json(name), depth + 1)))
      return false;
  }
  return true;
}

Result<bool> SchemaFacts::valid(const SchemaPlace& place, const Json& value, int depth) {
  const Json& schema = *place.schema;
  if (schema.is_bool()) return schema.as_bool();
  if (depth > kDepthMax) return schema_refusal(place.at, "a schema that does not lead to itself");
  if (!TRY(own_valid(place, value, depth))) return false;
  if (schema.find("$ref") != nullptr) {
    const SchemaPlace next = TRY(target(place));
    if (!TRY(valid(next, value, depth + 1))) return false;
  }
  for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
    const Json* list = schema.find(keyword);
    if (list == nullptr) continue;
    size_t right = 0;
    for (size_t i = 0; i < list->as_array().size(); ++i)
      if (TRY(valid({&list->as_array()[i], concat(place.at, "/", keyword, "/", i)}, value,
                    depth + 1)))
        ++right;
    const std::string_view kind = keyword;
    if (kind == "allOf" ? right != list->as_array().size()
                        : right == 0 || (kind == "oneOf" && right > 1))
      return false;
  }
  return true;
}

Result<bool> SchemaFacts::valid(const Alternative& parts, const Json& value) {
  for (const SchemaPart& part : parts)
    if (!TRY(valid(part.place, value))) return false;
  return true;
}

/// Objects that one of them writes are none of the other's: it lacks a name that the other wants,
/// or has it with another value.
Result<bool> SchemaFacts::apart_objects(const Alternative& a, const Alternative& b) {
  for (const SchemaPart& part : b) {
    const Json* required = part.place.schema->find("required");
    if (required == nullptr) continue;
    for (const Json& name : required->as_array()) {
      const std::string& text = name.as_string();
      const bool written = declares(a, text) || is_required(a, text) || !closed(a);
      if (!written) return true;
      const Together of_a = TRY(property(a, text));
      const Together of_b = TRY(property(b, text));
      if (TRY(apart(of_a, of_b))) return true;
    }
  }
  return false;
}

Result<bool> SchemaFacts::apart_parts(const Alternative& a, const Alternative& b) {
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    for (const SchemaPart& part : *one) {
      const Json* options = part.place.schema->find("enum");
      const Json* only = part.place.schema->find("const");
      if (options == nullptr && only == nullptr) continue;
      for (const Json& value : only != nullptr ? Json::Array{*only} : options->as_array())
        if (TRY(valid(*one, value)) && TRY(valid(*other, value))) return false;
      return true;
    }
  const unsigned common = TRY(types(a)) & TRY(types(b));
  if ((common & (kNullType | kBooleanType | kArrayType)) != 0) return false;
  Alternative joined = a;
  joined.insert(joined.end(), b.begin(), b.end());
  if ((common & (kIntegerType | kNumberType)) != 0 && range_of(joined).open()) return false;
  if ((common & kStringType) != 0) {
    const Pattern of_a = TRY(string_pattern(a));
    const Pattern of_b = TRY(string_pattern(b));
    if (!of_a || !of_b) return false;
    const Language texts_a = TRY(Language::of(of_a));
    const Language texts_b = TRY(Language::of(of_b));
    if (!TRY(Language::both(texts_a, texts_b)).empty()) return false;
  }
  if ((common & kObjectType) == 0) return true;
  return TRY(apart_objects(a, b)) && TRY(apart_objects(b, a));
}

Result<bool> SchemaFacts::apart(const Together& a, const Together& b) {
  constexpr int kApartDepthMax = 4;
  if (apart_depth_ >= kApartDepthMax) return false;
  ++apart_depth_;
  const auto found = apart_inside(a, b);
  --apart_depth_;
  return found;
}

Result<bool> SchemaFacts::apart_inside(const Together& a, const Together& b) {
  const auto of_a = TRY(alternatives(a));
  const auto of_b = TRY(alternatives(b));
  for (const Alternative& x : of_a)
    for (const Alternative& y : of_b)
      if (!TRY(apart_parts(x, y))) return false;
  return true;
}

}  // namespace nibble
