// The rules of lists and of objects, and of the parameters of a call, which are an object's members
// in another form.
#include <algorithm>
#include <utility>

#include "grammar/pattern_reader.h"
#include "grammar/schema_writer.h"

namespace nibble {

namespace {

constexpr size_t kNamePatternsMax = 4;

/// True if a name can stand in <parameter=NAME>.
bool writable(std::string_view name) { return name.find_first_of(">\n") == std::string_view::npos; }

/// Ways of reading a parameter's text: as it is, or as JSON.
enum Readings : unsigned { kAsText = 1, kAsJson = 2 };

Result<unsigned> readings_of(SchemaFacts& facts, const Together& together) {
  unsigned made = 0;
  for (const Alternative& parts : TRY(facts.alternatives(together))) {
    unsigned types = TRY(SchemaFacts::types(parts));
    for (const SchemaPart& part : parts) {
      const Json* only = part.place.schema->find("const");
      const Json* options = part.place.schema->find("enum");
      if (only == nullptr && options == nullptr) continue;
      unsigned listed = 0;
      for (const Json& value : only != nullptr ? Json::Array{*only} : options->as_array())
        listed |= value.is_string() ? kStringType : kNumberType;
      types = listed;
    }
    if ((types & kStringType) != 0) made |= kAsText;
    if ((types & ~kStringType) != 0) made |= kAsJson;
  }
  return made;
}

bool same_schemas(const Together& a, const Together& b) {
  return std::ranges::equal(
      a, b, [](const SchemaPlace& x, const SchemaPlace& y) { return x.schema == y.schema; });
}

constexpr std::string_view kValueEnd = R"( "\n</parameter>\n")";

std::string_view separator(Form form) { return form == Form::json ? "sep " : ""; }

}  // namespace

/// The values that a schema lists, with those that it has by its type; nothing, if there are
/// others.
Result<std::optional<std::vector<Json>>> SchemaWriter::listed(const Together& together) {
  using Listed = std::optional<std::vector<Json>>;
  Listed made(std::in_place);
  const auto add_value = [&](const Json& value) {
    if (std::ranges::find(*made, value) == made->end()) made->push_back(value);
  };
  for (const Alternative& parts : TRY(facts_.alternatives(together))) {
    const unsigned types = TRY(SchemaFacts::types(parts));
    if (!says(parts, {"enum", "const"})) {
      if ((types & ~(kBooleanType | kNullType)) != 0) return Listed();
      if ((types & kBooleanType) != 0) add_value(Json(true));
      if ((types & kBooleanType) != 0) add_value(Json(false));
      if ((types & kNullType) != 0) add_value(Json());
    }
    for (const SchemaPart& part : parts) {
      const Json* options = part.place.schema->find("enum");
      const Json* only = part.place.schema->find("const");
      if (options == nullptr && only == nullptr) continue;
      for (const Json& value : only != nullptr ? Json::Array{*only} : options->as_array()) {
        // Equal values of these kinds are not always written in one way.
        if (value.is_double() || value.is_array() || value.is_object()) return Listed();
        if (TRY(facts_.valid(parts, value))) add_value(value);
      }
    }
  }
  return made;
}

/// A list of different values of those listed, in their order.
Result<Rule> SchemaWriter::unique_array(const std::vector<Json>& values, const Alternative& parts) {
  Object made;
  for (const Json& value : values) made.properties.push_back({literal_text(value.dump())});
  made.most = static_cast<int64_t>(values.size());
  for (const SchemaPart& part : parts) {
    if (const Json* b = part.place.schema->find("minItems"))
      made.least = std::max(made.least, static_cast<int64_t>(b->as_double()));
    if (const Json* b = part.place.schema->find("maxItems"))
      made.most = std::min(*made.most, static_cast<int64_t>(b->as_double()));
  }
  const Rule inside = TRY(tail(made, 0, 0));
  if (!inside) return Rule();
  if (*inside == "\"\"") return Rule("\"[\" ws \"]\"");
  return Rule(TRY(add(concat("\"[\" ws ", *inside, " ws \"]\""))));
}

Result<Rule> SchemaWriter::array(const Alternative& parts) {
  if (!says(parts, {"items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems",
                    "maxItems", "uniqueItems"}))
    return Rule("array");
  constexpr size_t kUniqueMax = 64;
  if (unique_items(parts) && !tuples(parts)) {
    const auto values = TRY(listed(SchemaFacts::item(parts, 0)));
    if (values && values->size() <= kUniqueMax) return unique_array(*values, parts);
  }
  auto [least, most, own] = TRY(item_counts(parts));
  std::vector<std::string> items;
  for (size_t i = 0; i < own; ++i) {
    const Rule item = TRY(rule(SchemaFacts::item(parts, i)));
    if (!item) {
      most = std::min(most.value_or(static_cast<int64_t>(i)), static_cast<int64_t>(i));
      break;
    }
    items.push_back(*item);
  }
  Rule rest;
  const bool more = items.size() == own && (!most || std::cmp_greater(*most, own));
  if (more) rest = TRY(rule(SchemaFacts::item(parts, own)));
  if (!rest) most = std::min(most.value_or(INT64_MAX), static_cast<int64_t>(items.size()));
  if (most && *most < least) return Rule();
  // The loop goes from the last item back: each may end the list once there are enough.
  std::string tail;
  if (rest) {
    const auto first = static_cast<int64_t>(items.size());
    const int64_t from = std::max<int64_t>(least - first, 0);
    const std::string to = most ? concat(*most - first) : std::string();
    const int64_t taken = first == 0 ? 1 : 0;  // the first has no comma before it
    if (first == 0 && most && *most == 1) {
      tail = *rest;
    } else if (first == 0) {
      tail = concat(*rest, " (sep ", *rest, "){", std::max<int64_t>(from - taken, 0), ",",
                    most ? concat(*most - 1) : "", "}");
    } else {
      tail = concat("(sep ", *rest, "){", from, ",", to, "}");
    }
    if (first == 0)
      return Rule(TRY(add(least > 0 ? concat("\"[\" ws ", tail, " ws \"]\"")
                                    : concat("\"[\" ws (", tail, " ws)? \"]\""))));
    if (from == 0 && most && *most == first) tail.clear();
  }
  for (size_t i = items.size(); i-- > 0;) {
    if (most && std::cmp_greater_equal(i, *most)) continue;
    const std::string here = concat(i == 0 ? "" : "sep ", items[i], tail.empty() ? "" : " ", tail);
    const bool may_end = std::cmp_less_equal(least, i);
    tail = may_end ? concat("(", TRY(add(here)), ")?") : TRY(add(here));
  }
  if (tail.empty()) return Rule("\"[\" ws \"]\"");
  return Rule(TRY(add(concat("\"[\" ws ", tail, " ws \"]\""))));
}

Result<std::optional<std::vector<SchemaWriter::Property>>> SchemaWriter::named_properties(
    const Alternative& parts, Form form) {
  std::optional<std::vector<Property>> made(std::in_place);
  const Together rules = name_schemas(parts);
  for (const std::string& name : names_of(parts)) {
    if (form == Form::call && !writable(name))
      return schema_refusal(concat(parts.front().place.at, "/properties/", escaped_name(name)),
                            "a name without '>' and line breaks");
    bool allowed = true;
    for (const SchemaPlace& place : rules)
      allowed = allowed && TRY(facts_.valid(place, Json(name)));
    Rule value;
    if (allowed) {
      const Together schemas = TRY(facts_.property(parts, name));
      value = form == Form::json ? TRY(rule(schemas)) : TRY(parameter(schemas));
    }
    const bool required = is_required(parts, name);
    if (!value && required) made.reset();
    if (!made) return made;
    if (!value) continue;
    const std::string text =
        form == Form::json
            ? concat(literal_text(Json(name).dump()), " ws \":\" ws ", *value)
            : concat(literal_text(concat("<parameter=", name, ">\n")), " ", *value, kValueEnd);
    made->push_back({text, required});
  }
  return made;
}

/// All names that the schemas neither give nor forbid. In calls, where nothing is said of them,
/// they are identifiers.
Result<Language> SchemaWriter::other_names(const Alternative& parts, Form form) {
  const Together rules = name_schemas(parts);
  Pattern base = anything_pattern();
  if (form == Form::call && (!name_patterns(parts).empty() || !rules.empty()))
    base = repeat_pattern(
        characters_pattern(other_characters({{0, 0x1F}, {'<', '<'}, {'>', '>'}, {0x7F, 0x7F}})), 1,
        -1);
  else if (form == Form::call)
    base = TRY(read_pattern("^[a-zA-Z_][a-zA-Z0-9_]*$"));
  Language all = TRY(Language::of(base));
  std::vector<Pattern> words;
  for (const std::string& name : names_of(parts)) words.push_back(text_pattern(name));
  if (!words.empty()) {
    const Language taken = TRY(Language::of(choice_pattern(std::move(words))));
    all = TRY(Language::without(all, taken));
  }
  if (!rules.empty()) {
    const Language allowed = TRY(facts_.names(rules));
    all = TRY(Language::both(all, allowed));
  }
  return all;
}

/// The names that other properties may have, told apart by the patterns that match them.
Result<Rule> SchemaWriter::other_properties(const Alternative& parts, Form form) {
  const std::vector<std::string> patterns = name_patterns(parts);
  const bool others = holds_others(parts);
  if (!others && patterns.empty()) return Rule();
  const auto value_of = [&](const std::string& name) -> Result<Rule> {
    const Together schemas = TRY(facts_.property(parts, name));
    return form == Form::json ? rule(schemas) : parameter(schemas);
  };
  const auto member = [&](const std::string& name, const std::string& value) {
    if (form == Form::call) return concat("\"<parameter=\" ", name, " \">\\n\" ", value, kValueEnd);
    return concat(name, " ws \":\" ws ", value);
  };
  if (patterns.empty() && names_of(parts).empty() && name_schemas(parts).empty()) {
    // No text can be a name of that kind that the schemas tell apart.
    const Rule value = TRY(value_of(""));
    return value ? Rule(member(form == Form::json ? "string" : "name", *value)) : Rule();
  }
  if (patterns.size() > kNamePatternsMax)
    return schema_refusal(concat(parts[0].place.at, "/patternProperties"),
                          concat("at most ", kNamePatternsMax, " patterns together"));
  const Language all = TRY(other_names(parts, form));
  std::string out;
  for (unsigned matched = 0; matched < 1U << patterns.size(); ++matched) {
    if (matched == 0 && !others) continue;
    Language here = all;
    for (size_t i = 0; i < patterns.size(); ++i) {
      const auto read = read_pattern(patterns[i]);
      if (!read.ok())
        return schema_refusal(
            concat(parts[0].place.at, "/patternProperties/", escaped_name(patterns[i])),
            read.error().message);
      const Language* language = TRY(facts_.language(patterns[i], read.value()));
      const bool in = (matched >> i & 1U) != 0;
      here = in ? TRY(Language::both(here, *language)) : TRY(Language::without(here, *language));
    }
    const std::optional<std::string> example = here.example();
    if (!example) continue;
    const Rule value = TRY(value_of(*example));
    if (!value) continue;
    const Pattern pattern = TRY(here.pattern());
    const bool json = form == Form::json;
    const std::string name =
        TRY(add(regex_macro(pattern, json ? Spelling::json : Spelling::plain)));
    out += concat(out.empty() ? "" : " | ",
                  member(json ? concat(R"("\"" )", name, R"( "\"")") : name, *value));
  }
  return out.empty() ? Rule() : Rule(TRY(add(out)));
}

/// The rule that may end an object after its last named property; `count` were said.
Rule SchemaWriter::end_of(Object& object, int64_t count) const {
  const std::string_view between = separator(object.form);
  const int64_t missing = object.least - count;
  const auto room = object.most ? std::optional(*object.most - count) : std::nullopt;
  if (!object.others || (room && *room <= 0)) return missing <= 0 ? Rule("\"\"") : Rule();
  if (missing > 1) {
    object.left_out = true;  // names could be the same
    return Rule();
  }
  const std::string end = room ? concat(*room - 1) : std::string();
  const std::string more = concat(count == 0 ? "" : between, *object.others, " (", between,
                                  *object.others, "){0,", end, "}");
  return missing == 1 ? Rule(more) : Rule(concat("(", more, ")?"));
}

/// The members from the property `next` on, after `count`.
Result<Rule> SchemaWriter::tail(Object& object, size_t next, int64_t count) {
  const int64_t cap = object.most.value_or(std::max<int64_t>(object.least, 1));
  count = std::min(count, object.most ? cap + 1 : cap);
  if (object.most && count > *object.most) return Rule();
  if (next == object.properties.size()) {
    const Rule end = end_of(object, count);
    return end && *end != "\"\"" ? Rule(TRY(add(*end))) : end;
  }
  const auto found = object.tails.find({next, count});
  if (found != object.tails.end()) return found->second;
  const Property& property = object.properties[next];
  std::string out;
  if (const Rule with = TRY(tail(object, next + 1, count + 1)))
    out = concat(count == 0 ? "" : separator(object.form), property.text,
                 *with == "\"\"" ? "" : " ", *with == "\"\"" ? "" : *with);
  if (!property.required)
    if (const Rule without = TRY(tail(object, next + 1, count)))
      out = out.empty() ? *without : concat(out, " | ", *without);
  const Rule made = out.empty() ? Rule() : Rule(out == "\"\"" ? out : TRY(add(out)));
  object.tails[{next, count}] = made;
  return made;
}

Result<Rule> SchemaWriter::object(const Alternative& parts, Form form) {
  if (form == Form::json &&
      !says(parts, {"properties", "patternProperties", "additionalProperties", "required",
                    "unevaluatedProperties", "propertyNames", "minProperties", "maxProperties"}))
    return Rule("object");
  Object made{.form = form};
  std::string at;
  for (const SchemaPart& part : parts) {
    if (const Json* b = part.place.schema->find("minProperties")) {
      made.least = std::max(made.least, static_cast<int64_t>(b->as_double()));
      at = concat(part.place.at, "/minProperties");
    }
    if (const Json* b = part.place.schema->find("maxProperties")) {
      const auto bound = static_cast<int64_t>(b->as_double());
      made.most = std::min(made.most.value_or(bound), bound);
    }
  }
  auto named = TRY(named_properties(parts, form));
  if (!named) return Rule();
  made.properties = *std::move(named);
  made.others = TRY(other_properties(parts, form));
  const Rule inside = TRY(tail(made, 0, 0));
  if (!inside && made.left_out)
    return schema_refusal(at, "at most one property more than the schema names");
  if (!inside || form == Form::call) return inside;
  if (*inside == "\"\"") return Rule("\"{\" ws \"}\"");
  return Rule(TRY(add(concat("\"{\" ws ", *inside, " ws \"}\""))));
}

/// Refuses alternatives under which the text of a parameter means different values.
Result<void> SchemaWriter::one_reading(const std::vector<Alternative>& alternatives) {
  if (alternatives.size() < 2) return {};
  std::vector<std::string> names;
  for (const Alternative& parts : alternatives) {
    if (!name_patterns(parts).empty())
      return schema_refusal("", "no patternProperties beside alternatives of all parameters");
    for (const std::string& name : names_of(parts)) names.push_back(name);
  }
  names.emplace_back();  // one that none gives
  for (const std::string& name : names) {
    unsigned readings = 0;
    std::optional<Together> first;
    bool same = true;
    for (const Alternative& parts : alternatives) {
      if (!may_hold(parts, name)) continue;
      const Together schemas = TRY(facts_.property(parts, name));
      readings |= TRY(readings_of(facts_, schemas));
      if (!first) first = schemas;
      same = same && same_schemas(*first, schemas);
    }
    if (!same && readings == (kAsText | kAsJson))
      return schema_refusal(
          "", concat("a parameter ", name, " that is a string in all alternatives or in none"));
  }
  return {};
}

Result<std::string> SchemaWriter::call() {
  static const Json kObject = json_object({{"type", Json("object")}});
  const auto alternatives = TRY(facts_.alternatives({{&facts_.root(), ""}, {&kObject, ""}}));
  TRY(one_reading(alternatives));
  std::string out;
  for (const Alternative& parts : alternatives) {
    if ((TRY(SchemaFacts::types(parts)) & kObjectType) == 0) continue;
    if (says(parts, {"enum", "const"}))
      return schema_refusal("", "properties, not enum or const of all parameters");
    if (const Rule made = TRY(object(parts, Form::call)))
      out += concat(out.empty() ? "" : " | ", *made);
  }
  if (!out.empty()) return add(out);
  return make_error(ErrorCode::invalid_argument,
                    {.what = "the schema", .expected = "something that fulfils it"});
}

}  // namespace nibble
