// A rule for each set of schemas that hold together; what nothing fulfils has no rule. The members
// of objects and the items of lists are in schema_objects.cc.
#include "grammar/schema_grammar.h"

#include <algorithm>

#include "grammar/number_pattern.h"
#include "grammar/pattern_reader.h"
#include "grammar/schema_conditions.h"
#include "grammar/schema_writer.h"

namespace nibble {

namespace {

constexpr size_t kRulesMax = 50000;
constexpr int kSharedDepthMax = 200;

/// Exponents have two digits at most: a double holds 1e99, and any reader the text. `text` and what
/// follows it are for the form of calls: a string as it is, with no end of a parameter in it.
/// `quoted` is JSON inside a JSON string.
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
quoted ::= number | boolean | "null" | quotedstring | quotedarray | quotedobject
quotedstring ::= "\\\"" character* "\\\""
quotedarray ::= "[" (quoted ("," " "? quoted)*)? "]"
quotedobject ::= "{" (quotedmember ("," " "? quotedmember)*)? "}"
quotedmember ::= quotedstring ":" " "? quoted
)";
constexpr std::string_view kCallBasics =
    R"(text ::= TagDispatch(loop_after_dispatch=false, excludes=("</parameter>"))
plain ::= [\x01-;=-\u07ff] | [\u0800-\ud7ff\ue000-\uffff] | [\U00010000-\U0010ffff]
solid ::= [\x01-\x08\x0b\x0c\x0e-\x1f!-;=-\u07ff] | [\u0800-\ud7ff\ue000-\uffff] | astral
astral ::= [\U00010000-\U0010ffff]
name ::= [a-zA-Z_] [a-zA-Z0-9_]*
)";

std::string basic_rules(int whitespace_max) {
  return concat("ws ::= [ \\t\\n\\r]{0,", whitespace_max, "}\n", kBasics);
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

/// The strings without the end of a parameter in them.
Result<Pattern> without_end(const Pattern& pattern) {
  const Language all = TRY(Language::of(pattern));
  const Language end = TRY(Language::of(
      sequence_pattern({anything_pattern(), text_pattern(kParameterEnd), anything_pattern()})));
  const Language ends = TRY(Language::both(all, end));
  if (ends.empty()) return pattern;
  const Language made = TRY(Language::without(all, end));
  auto exact = made.pattern();
  if (exact.ok()) return exact;
  // Fewer strings, but a shorter pattern: none with the character that begins the end.
  const Language plain =
      TRY(Language::of(repeat_pattern(characters_pattern(other_characters({{'<', '<'}})), 0, -1)));
  const Language fewer = TRY(Language::both(all, plain));
  return fewer.pattern();
}

bool is_empty_text(const Pattern& pattern) {
  return pattern->kind == PatternNode::Kind::sequence && pattern->parts.empty();
}
}  // namespace

std::string literal_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte < 0x20 || byte == 0x7F) {  // not \x, which takes all digits that follow
      constexpr const char* kHex = "0123456789abcdef";
      out += concat("\\u00", std::string(1, kHex[byte / 16]), std::string(1, kHex[byte % 16]));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string regex_macro(const Pattern& pattern, Spelling spelling) {
  return concat("Regex(", literal_text(regex_text(pattern, spelling)), ", json_string=false)");
}

Result<std::string> SchemaWriter::add(std::string body) {
  const auto [found, fresh] = by_body_.try_emplace(body, rule_name(bodies_.size()));
  if (!fresh) return found->second;
  if (bodies_.size() > kRulesMax)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "the schema", .expected = concat("at most ", kRulesMax, " rules of a grammar")});
  bodies_.push_back(std::move(body));
  return found->second;
}

Result<Rule> SchemaWriter::rule(const Together& asked) {
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
  const Rule body = TRY(choice(alternatives, Form::json));
  --depth_;
  bodies_[index] = body.value_or("");
  if (!body) known_[key] = std::nullopt;
  return known_[key];
}

/// The rule of a parameter's value as the form of calls holds it.
Result<Rule> SchemaWriter::parameter(const Together& asked) {
  const Together together = TRY(followed(facts_, asked));
  if (key_of(together).empty()) return Rule("text");
  const std::vector<Alternative> alternatives = TRY(facts_.alternatives(together));
  const Rule body = TRY(choice(alternatives, Form::call));
  return body ? Rule(TRY(add(*body))) : Rule();
}

Result<Rule> SchemaWriter::choice(const std::vector<Alternative>& alternatives, Form form) {
  std::vector<std::string> options;
  for (const Alternative& parts : alternatives)
    if (const Rule made = TRY(alternative(parts, form));
        made && std::ranges::find(options, *made) == options.end())
      options.push_back(*made);
  std::string out;
  for (const std::string& option : options) out += concat(out.empty() ? "" : " | ", option);
  return options.empty() ? Rule() : Rule(out);
}

Result<Rule> SchemaWriter::values(const Alternative& parts, Form form) {
  const Json* options = nullptr;
  const Json* only = nullptr;
  for (const SchemaPart& part : parts) {
    if (only == nullptr) only = part.place.schema->find("const");
    if (options == nullptr) options = part.place.schema->find("enum");
  }
  std::string out;
  for (const Json& option : only != nullptr ? Json::Array{*only} : options->as_array()) {
    if (!TRY(facts_.valid(parts, option))) continue;
    const bool raw = form == Form::call && option.is_string();
    const std::string text = raw ? option.as_string() : option.dump();
    if (form == Form::call && text.find(kParameterEnd) != std::string::npos) continue;
    out += concat(out.empty() ? "" : " | ", literal_text(text));
  }
  return out.empty() ? Rule() : Rule(out);
}

Result<Rule> SchemaWriter::alternative(const Alternative& parts, Form form) {
  if (says(parts, {"enum", "const"})) return values(parts, form);
  const unsigned types = TRY(SchemaFacts::types(parts));
  std::string out;
  const auto add_option = [&](const Rule& option) {
    if (option) out += concat(out.empty() ? "" : " | ", *option);
  };
  if ((types & kObjectType) != 0) add_option(TRY(object(parts, Form::json)));
  if ((types & kArrayType) != 0) add_option(TRY(array(parts)));
  if ((types & kStringType) != 0)
    add_option(form == Form::json ? TRY(string(parts)) : TRY(raw_string(parts)));
  if ((types & kIntegerType) != 0) add_option(TRY(number(parts, types)));
  if ((types & kBooleanType) != 0) add_option(Rule("boolean"));
  if ((types & kNullType) != 0) add_option(Rule("\"null\""));
  return out.empty() ? Rule() : Rule(out);
}

Result<Rule> SchemaWriter::number(const Alternative& parts, unsigned types) {
  const bool whole = (types & kNumberType) == 0;
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
  if (is_nothing(made.value())) return Rule();
  return Rule(TRY(add(regex_macro(made.value(), Spelling::plain))));
}

SchemaWriter::Lengths SchemaWriter::lengths(const Alternative& parts) {
  Lengths made;
  for (const SchemaPart& part : parts) {
    if (const Json* b = part.place.schema->find("minLength")) {
      made.least = std::max(made.least, static_cast<int64_t>(b->as_double()));
      made.at = concat(part.place.at, "/minLength");
    }
    if (const Json* b = part.place.schema->find("maxLength")) {
      const auto bound = static_cast<int64_t>(b->as_double());
      made.most = std::min(made.most.value_or(bound), bound);
      made.at = concat(part.place.at, "/maxLength");
    }
  }
  return made;
}

/// The strings that patterns and formats allow, of such lengths; nullptr: they say nothing.
Result<Pattern> SchemaWriter::counted_pattern(const Alternative& parts, const Lengths& lengths) {
  const Pattern pattern = TRY(facts_.string_pattern(parts));
  if (!pattern || (lengths.least == 0 && !lengths.most)) return pattern;
  const Pattern length =
      repeat_pattern(characters_pattern({{0, kLastCharacter}}), static_cast<int>(lengths.least),
                     static_cast<int>(lengths.most.value_or(-1)));
  const auto both = [&]() -> Result<Pattern> {
    const Language texts = TRY(Language::of(pattern));
    const Language counted = TRY(Language::of(length));
    return TRY(Language::both(texts, counted)).pattern();
  }();
  if (!both.ok()) return schema_refusal(lengths.at, both.error().message);
  return both.value();
}

/// True if a string holds JSON by its media type; of other types nothing is enforced, as JSON
/// Schema has it.
Result<bool> SchemaWriter::holds_json(const Alternative& parts) {
  for (const SchemaPart& part : parts) {
    const Json* kind = part.place.schema->find("contentMediaType");
    if (kind == nullptr || *kind != Json("application/json")) continue;
    if (says(parts, {"pattern", "format", "contentEncoding", "minLength", "maxLength"}))
      return schema_refusal(concat(part.place.at, "/contentMediaType"),
                            "no pattern, format or length beside it");
    const Json* inside = part.place.schema->find("contentSchema");
    if (inside != nullptr && *inside != Json(true) && *inside != Json(Json::Object{}))
      return schema_refusal(concat(part.place.at, "/contentSchema"), "{}: any JSON");
    return true;
  }
  return false;
}

Result<Rule> SchemaWriter::string(const Alternative& parts) {
  if (TRY(holds_json(parts))) return Rule(R"("\"" quoted "\"")");
  const Lengths counts = lengths(parts);
  if (counts.most && *counts.most < counts.least) return Rule();
  const Pattern pattern = TRY(counted_pattern(parts, counts));
  if (!pattern && counts.least == 0 && !counts.most) return Rule("string");
  const std::string end = counts.most ? concat(*counts.most) : std::string();
  if (!pattern)
    return Rule(TRY(add(concat(R"("\"" character{)", counts.least, ",", end, R"(} "\"")"))));
  if (is_nothing(pattern)) return Rule();
  if (is_empty_text(pattern)) return Rule(R"("\"\"")");
  return Rule(TRY(add(concat(R"("\"" )", regex_macro(pattern, Spelling::json), R"( "\"")"))));
}

/// A string as the form of calls holds it. With a length it has no '<' where characters are
/// counted.
Result<Rule> SchemaWriter::raw_string(const Alternative& parts) {
  if (TRY(holds_json(parts))) return Rule("value");
  const Lengths counts = lengths(parts);
  if (counts.most && *counts.most < counts.least) return Rule();
  const Pattern counted = TRY(counted_pattern(parts, counts));
  // A string that may not be empty is not blank either: it begins with something that is seen.
  const std::string first = counts.least > 0 ? "solid " : "";
  const int64_t taken = first.empty() ? 0 : 1;
  const std::string least = concat(counts.least - taken);
  if (!counted && counts.most)
    return Rule(TRY(add(concat(first, "plain{", least, ",", *counts.most - taken, "}"))));
  if (!counted && counts.least > 0)
    return Rule(TRY(add(concat(first, "plain{", least, ",", least, "} text"))));
  if (!counted) return Rule("text");
  const auto pattern = without_end(counted);
  if (!pattern.ok()) return schema_refusal(parts.back().place.at, pattern.error().message);
  if (is_nothing(pattern.value())) return Rule();
  if (is_empty_text(pattern.value())) return Rule("\"\"");
  return Rule(TRY(add(regex_macro(pattern.value(), Spelling::plain))));
}

Result<std::string> SchemaWriter::answer() {
  const Rule made = TRY(rule({{&facts_.root(), ""}}));
  if (made) return *made;
  return make_error(ErrorCode::invalid_argument,
                    {.what = "the schema", .expected = "something that fulfils it"});
}

std::string SchemaWriter::rules() const {
  std::string out;
  for (size_t i = 0; i < bodies_.size(); ++i)
    if (!bodies_[i].empty()) out += concat(rule_name(i), " ::= ", bodies_[i], "\n");
  return out;
}

Result<std::string> schema_grammar(const Json& schema, int whitespace_max) {
  const Json plain = TRY(without_conditions(schema));
  SchemaWriter writer(plain, "");
  const std::string root = TRY(writer.answer());
  return concat("root ::= ", root, "\n", basic_rules(whitespace_max), writer.rules());
}

Result<std::string> call_grammar(std::span<const CallableTool> tools, int whitespace_max) {
  static const Json kAny(Json::Object{});
  std::string functions;
  std::string rules;
  for (size_t i = 0; i < tools.size(); ++i) {
    if (tools[i].name.find_first_of(">\n") != std::string::npos)
      return make_error(ErrorCode::invalid_argument, {.what = "the name of a function",
                                                      .expected = "no '>' and no line breaks",
                                                      .found = tools[i].name});
    const auto plain =
        without_conditions(tools[i].parameters.is_null() ? kAny : tools[i].parameters);
    SchemaWriter writer(plain.ok() ? plain.value() : kAny, concat("f", i));
    const auto parameters = plain.ok() ? writer.call() : Result<std::string>(plain.error());
    if (!parameters.ok())
      return make_error(ErrorCode::invalid_argument,
                        {.what = concat("parameters of the function ", tools[i].name),
                         .found = parameters.error().message});
    functions +=
        concat(i == 0 ? "" : " | ", literal_text(concat("\n<function=", tools[i].name, ">\n")), " ",
               parameters.value(), " \"</function>\\n\"");
    rules += writer.rules();
  }
  return concat("root ::= ", functions, "\n", basic_rules(whitespace_max), kCallBasics, rules);
}

}  // namespace nibble
