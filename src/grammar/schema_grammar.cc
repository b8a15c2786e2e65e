// A rule for each set of schemas that hold together; what nothing fulfils has no rule.
#include "grammar/schema_grammar.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "grammar/number_pattern.h"
#include "grammar/pattern_reader.h"
#include "grammar/schema_facts.h"

namespace nibble {

namespace {

constexpr size_t kRulesMax = 50000;
constexpr size_t kNamePatternsMax = 4;
constexpr int kSharedDepthMax = 200;

/// A text of the grammar, or nothing where no value fits.
using Rule = std::optional<std::string>;

/// Exponents have two digits at most: a double holds 1e99, and any reader the text.
constexpr std::string_view kBasics =
    R"(sep ::= ws "," ws
string ::= "\"" characters "\""
characters ::= "" | character characters | "\\" escape characters
character ::= [ !#-\[\]-\ud7ff\ue000-\U0010ffff]
escape ::= [\"\\/bfnrt] | "u" single | "u" pair
single ::= ([0-9A-CE-Fa-ce-f] hex | [Dd] [0-7]) hex hex
pair ::= [Dd] [89ABab] hex hex "\\u" [Dd] [C-Fc-f] hex hex
hex ::= [0-9A-Fa-f]
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9] [0-9]?)?
integer ::= "-"? ("0" | [1-9] [0-9]*)
boolean ::= "true" | "false"
value ::= number | string | boolean | "null" | array | object
array ::= "[" ws (value (sep value)* ws)? "]"
object ::= "{" ws (member (sep member)* ws)? "}"
member ::= string ws ":" ws value
)";

std::string literal_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte < 0x20 || byte == 0x7F) {
      constexpr const char* kHex = "0123456789abcdef";
      out += concat("\\x", std::string(1, kHex[byte / 16]), std::string(1, kHex[byte % 16]));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string regex(const Pattern& pattern, Spelling spelling) {
  return concat("Regex(", literal_text(regex_text(pattern, spelling)), ", json_string=false)");
}

class Writer {
 public:
  Writer(const Json& root, int whitespace_max) : facts_(root), whitespace_max_(whitespace_max) {}
  Result<std::string> write();

 private:
  struct Object {
    struct Property {
      std::string text;  // its name and value
      bool required = false;
    };
    std::vector<Property> properties;
    Rule others;  // any other name and its value
    int64_t least = 0;
    std::optional<int64_t> most;
    std::map<std::pair<size_t, int64_t>, Rule> tails;
    bool left_out = false;  // a way to enough properties would count a name twice
  };

  Result<Rule> rule(const Together& together);
  Result<Rule> choice(const std::vector<Alternative>& alternatives);
  Result<Rule> alternative(const Alternative& parts);
  Result<Rule> values(const Alternative& parts);
  Result<Rule> number(const Alternative& parts, bool whole);
  Result<Rule> string(const Alternative& parts);
  Result<Rule> array(const Alternative& parts);
  Result<Rule> object(const Alternative& parts);
  Result<void> named_properties(const Alternative& parts, Object& made, bool& possible);
  Result<Rule> other_properties(const Alternative& parts, const std::vector<std::string>& names);
  Result<Rule> tail(Object& object, size_t next, int64_t count);
  Rule end_of(Object& object, int64_t count) const;
  Result<std::string> add(std::string body);

  SchemaFacts facts_;
  int whitespace_max_;
  std::vector<std::string> bodies_;
  std::map<std::string, Rule> known_;
  std::map<std::string, std::string> by_body_;
  int depth_ = 0;
};

std::string rule_name(size_t index) { return concat("r", index); }

Result<std::string> Writer::add(std::string body) {
  const auto [found, fresh] = by_body_.try_emplace(body, rule_name(bodies_.size()));
  if (!fresh) return found->second;
  if (bodies_.size() > kRulesMax)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "the schema", .expected = concat("at most ", kRulesMax, " rules of a grammar")});
  bodies_.push_back(std::move(body));
  return found->second;
}

std::string key_of(const Together& together) {
  std::vector<std::string> keys;
  for (const SchemaPlace& place : together)
    if (*place.schema != Json(true))
      keys.push_back(concat(reinterpret_cast<uintptr_t>(place.schema)));
  std::ranges::sort(keys);
  keys.erase(std::ranges::unique(keys).begin(), keys.end());
  std::string out;
  for (const std::string& key : keys) out += key + " ";
  return out;
}

/// The schemas that references alone lead to.
Result<Together> followed(const SchemaFacts& facts, Together together) {
  for (SchemaPlace& place : together)
    for (int steps = 0; place.schema->is_object() && place.schema->as_object().size() == 1 &&
                        place.schema->find("$ref") != nullptr;
         ++steps) {
      if (steps > 100) return schema_refusal(place.at, "a reference that does not lead to itself");
      place = TRY(facts.target(place));
    }
  return together;
}

Result<Rule> Writer::rule(const Together& asked) {
  const Together together = TRY(followed(facts_, asked));
  const std::string key = key_of(together);
  if (key.empty()) return Rule("value");
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  if (++depth_ > kSharedDepthMax)
    return schema_refusal(together[0].at, concat("at most ", kSharedDepthMax, " levels in all"));
  const size_t index = bodies_.size();
  bodies_.emplace_back();  // its name, for what leads back to it
  known_[key] = rule_name(index);
  const std::vector<Alternative> alternatives = TRY(facts_.alternatives(together));
  const Rule body = TRY(choice(alternatives));
  --depth_;
  bodies_[index] = body.value_or("");
  if (!body) known_[key] = std::nullopt;
  return known_[key];
}

Result<Rule> Writer::choice(const std::vector<Alternative>& alternatives) {
  std::vector<std::string> options;
  for (const Alternative& parts : alternatives)
    if (const Rule made = TRY(alternative(parts));
        made && std::ranges::find(options, *made) == options.end())
      options.push_back(*made);
  std::string out;
  for (const std::string& option : options) out += concat(out.empty() ? "" : " | ", option);
  return options.empty() ? Rule() : Rule(out);
}

Result<Rule> Writer::values(const Alternative& parts) {
  const Json* options = nullptr;
  for (const SchemaPart& part : parts) {
    if (const Json* only = part.place.schema->find("const")) {
      if (!TRY(facts_.valid(parts, *only))) return Rule();
      return Rule(literal_text(only->dump()));
    }
    if (options == nullptr) options = part.place.schema->find("enum");
  }
  std::string out;
  for (const Json& option : options->as_array())
    if (TRY(facts_.valid(parts, option)))
      out += concat(out.empty() ? "" : " | ", literal_text(option.dump()));
  return out.empty() ? Rule() : Rule(out);
}

Result<Rule> Writer::alternative(const Alternative& parts) {
  if (says(parts, {"enum", "const"})) return values(parts);
  const unsigned types = TRY(SchemaFacts::types(parts));
  std::string out;
  const auto add_option = [&](const Rule& option) {
    if (option) out += concat(out.empty() ? "" : " | ", *option);
  };
  if ((types & kObjectType) != 0) add_option(TRY(object(parts)));
  if ((types & kArrayType) != 0) add_option(TRY(array(parts)));
  if ((types & kStringType) != 0) add_option(TRY(string(parts)));
  if ((types & kIntegerType) != 0) add_option(TRY(number(parts, (types & kNumberType) == 0)));
  if ((types & kBooleanType) != 0) add_option(Rule("boolean"));
  if ((types & kNullType) != 0) add_option(Rule("\"null\""));
  return out.empty() ? Rule() : Rule(out);
}

Result<Rule> Writer::number(const Alternative& parts, bool whole) {
  NumberRange range{.whole = whole, .least = {}, .most = {}, .multiples_of = {}};
  std::string at;
  for (const SchemaPart& part : parts) {
    const auto find = [&](const char* keyword) {
      const Json* found = part.place.schema->find(keyword);
      if (found != nullptr) at = concat(part.place.at, "/", keyword);
      return found;
    };
    if (const Json* b = find("minimum")) range.at_least(b->as_double(), Bound::included);
    if (const Json* b = find("exclusiveMinimum")) range.at_least(b->as_double(), Bound::excluded);
    if (const Json* b = find("maximum")) range.at_most(b->as_double(), Bound::included);
    if (const Json* b = find("exclusiveMaximum")) range.at_most(b->as_double(), Bound::excluded);
    if (const Json* step = find("multipleOf")) range.multiples_of.push_back(step->as_double());
  }
  if (!range.bounded()) return Rule(whole ? "integer" : "number");
  if (!range.open()) return Rule();
  const auto made = number_pattern(range);
  if (!made.ok()) return schema_refusal(at, made.error().message);
  if (made.value()->kind == PatternNode::Kind::choice && made.value()->parts.empty()) return Rule();
  return Rule(TRY(add(regex(made.value(), Spelling::plain))));
}

Result<Rule> Writer::string(const Alternative& parts) {
  int64_t least = 0;
  std::optional<int64_t> most;
  std::string at;
  for (const SchemaPart& part : parts) {
    if (const Json* b = part.place.schema->find("minLength")) {
      least = std::max(least, static_cast<int64_t>(b->as_double()));
      at = concat(part.place.at, "/minLength");
    }
    if (const Json* b = part.place.schema->find("maxLength")) {
      const auto bound = static_cast<int64_t>(b->as_double());
      most = std::min(most.value_or(bound), bound);
      at = concat(part.place.at, "/maxLength");
    }
  }
  if (most && *most < least) return Rule();
  Pattern pattern = TRY(facts_.string_pattern(parts));
  const bool counted = least > 0 || most;
  if (!pattern && !counted) return Rule("string");
  const std::string end = most ? concat(*most) : std::string();
  if (!pattern) return Rule(TRY(add(concat(R"("\"" character{)", least, ",", end, R"(} "\"")"))));
  if (counted) {
    const Pattern length =
        repeat_pattern(characters_pattern({{0, kLastCharacter}}), static_cast<int>(least),
                       static_cast<int>(most.value_or(-1)));
    const auto both = [&]() -> Result<Pattern> {
      const Language texts = TRY(Language::of(pattern));
      const Language counted_texts = TRY(Language::of(length));
      return TRY(Language::both(texts, counted_texts)).pattern();
    }();
    if (!both.ok()) return schema_refusal(at, both.error().message);
    pattern = both.value();
  }
  if (pattern->kind == PatternNode::Kind::choice && pattern->parts.empty()) return Rule();
  if (pattern->kind == PatternNode::Kind::sequence && pattern->parts.empty())
    return Rule(R"("\"\"")");
  const std::string text = regex(pattern, Spelling::json);
  return Rule(TRY(add(concat(R"("\"" )", text, R"( "\"")"))));
}

Result<Rule> Writer::array(const Alternative& parts) {
  if (!says(parts, {"items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems",
                    "maxItems", "uniqueItems"}))
    return Rule("array");
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
  // From the last item back: each may end the list once there are enough.
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

Result<void> Writer::named_properties(const Alternative& parts, Object& made, bool& possible) {
  const Together rules = name_schemas(parts);
  for (const std::string& name : names_of(parts)) {
    bool allowed = true;
    for (const SchemaPlace& place : rules)
      allowed = allowed && TRY(facts_.valid(place, Json(name)));
    Rule value;
    if (allowed) {
      const Together schemas = TRY(facts_.property(parts, name));
      value = TRY(rule(schemas));
    }
    const bool required = is_required(parts, name);
    if (!value && required) possible = false;
    if (!value) continue;
    made.properties.push_back(
        {concat(literal_text(Json(name).dump()), " ws \":\" ws ", *value), required});
  }
  return {};
}

/// The names that other properties may have, told apart by the patterns that match them.
Result<Rule> Writer::other_properties(const Alternative& parts,
                                      const std::vector<std::string>& names) {
  const bool open = !says(
      parts, {"properties", "patternProperties", "additionalProperties", "unevaluatedProperties"});
  const Together rules = name_schemas(parts);
  std::vector<std::string> patterns;
  bool others = open;
  for (const SchemaPart& part : parts) {
    if (const Json* found = part.place.schema->find("patternProperties"))
      for (const Json::Member& member : found->as_object())
        if (std::ranges::find(patterns, member.key) == patterns.end())
          patterns.push_back(member.key);
    for (const char* keyword : {"additionalProperties", "unevaluatedProperties"})
      others = others || part.place.schema->find(keyword) != nullptr;
  }
  if (!others && patterns.empty()) return Rule();
  if (patterns.empty() && names.empty() && rules.empty()) {
    // No text can be a name of that kind that the schemas tell apart.
    const Together schemas = TRY(facts_.property(parts, ""));
    const Rule value = TRY(rule(schemas));
    return value ? Rule(concat("string ws \":\" ws ", *value)) : Rule();
  }
  if (patterns.size() > kNamePatternsMax)
    return schema_refusal(concat(parts[0].place.at, "/patternProperties"),
                          concat("at most ", kNamePatternsMax, " patterns together"));
  Language all = TRY(Language::of(anything_pattern()));
  std::vector<Pattern> words;
  for (const std::string& name : names) words.push_back(text_pattern(name));
  if (!words.empty()) {
    const Language taken = TRY(Language::of(choice_pattern(std::move(words))));
    all = TRY(Language::without(all, taken));
  }
  if (!rules.empty()) {
    const Language allowed = TRY(facts_.names(rules));
    all = TRY(Language::both(all, allowed));
  }
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
    if (here.empty()) continue;
    const std::optional<std::string> example = here.example();
    const Together schemas = TRY(facts_.property(parts, *example));
    const Rule value = TRY(rule(schemas));
    if (!value) continue;
    const Pattern pattern = TRY(here.pattern());
    const std::string name = TRY(add(regex(pattern, Spelling::json)));
    out += concat(out.empty() ? "" : " | ", R"("\"" )", name, R"( "\"" ws ":" ws )", *value);
  }
  return out.empty() ? Rule() : Rule(TRY(add(out)));
}

/// The rule that may end an object after its last named property; `count` were said.
Rule Writer::end_of(Object& object, int64_t count) const {
  const int64_t missing = object.least - count;
  const auto room = object.most ? std::optional(*object.most - count) : std::nullopt;
  if (!object.others || (room && *room <= 0)) return missing <= 0 ? Rule("\"\"") : Rule();
  if (missing > 1) {
    object.left_out = true;  // names could be the same
    return Rule();
  }
  const std::string end = room ? concat(*room - 1) : std::string();
  const std::string more =
      concat(count == 0 ? "" : "sep ", *object.others, " (sep ", *object.others, "){0,", end, "}");
  return missing == 1 ? Rule(more) : Rule(concat("(", more, ")?"));
}

/// The members from the property `next` on, after `count`.
Result<Rule> Writer::tail(Object& object, size_t next, int64_t count) {
  const int64_t cap = object.most.value_or(std::max<int64_t>(object.least, 1));
  count = std::min(count, object.most ? cap + 1 : cap);
  if (object.most && count > *object.most) return Rule();
  if (next == object.properties.size()) {
    const Rule end = end_of(object, count);
    return end && *end != "\"\"" ? Rule(TRY(add(*end))) : end;
  }
  const auto found = object.tails.find({next, count});
  if (found != object.tails.end()) return found->second;
  const Object::Property& property = object.properties[next];
  std::string out;
  if (const Rule with = TRY(tail(object, next + 1, count + 1)))
    out = concat(count == 0 ? "" : "sep ", property.text, *with == "\"\"" ? "" : " ",
                 *with == "\"\"" ? "" : *with);
  if (!property.required)
    if (const Rule without = TRY(tail(object, next + 1, count)))
      out = out.empty() ? *without : concat(out, " | ", *without);
  const Rule made = out.empty() ? Rule() : Rule(out == "\"\"" ? out : TRY(add(out)));
  object.tails[{next, count}] = made;
  return made;
}

Result<Rule> Writer::object(const Alternative& parts) {
  if (!says(parts, {"properties", "patternProperties", "additionalProperties", "required",
                    "unevaluatedProperties", "propertyNames", "minProperties", "maxProperties"}))
    return Rule("object");
  Object made;
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
  bool possible = true;
  TRY(named_properties(parts, made, possible));
  if (!possible) return Rule();
  made.others = TRY(other_properties(parts, names_of(parts)));
  const Rule inside = TRY(tail(made, 0, 0));
  if (!inside && made.left_out)
    return schema_refusal(at, "at most one property more than the schema names");
  if (!inside) return Rule();
  if (*inside == "\"\"") return Rule("\"{\" ws \"}\"");
  return Rule(TRY(add(concat("\"{\" ws ", *inside, " ws \"}\""))));
}

Result<std::string> Writer::write() {
  const Rule root = TRY(rule({{&facts_.root(), ""}}));
  if (!root)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "the schema", .expected = "something that fulfils it"});
  std::string out =
      concat("root ::= ", *root, "\nws ::= [ \\t\\n\\r]{0,", whitespace_max_, "}\n", kBasics);
  for (size_t i = 0; i < bodies_.size(); ++i)
    if (!bodies_[i].empty()) out += concat(rule_name(i), " ::= ", bodies_[i], "\n");
  return out;
}

}  // namespace

Result<std::string> schema_grammar(const Json& schema, int whitespace_max) {
  return Writer(schema, whitespace_max).write();
}

}  // namespace nibble
