// The readings of a text, each tried under the schemas of the parameter.
#include "grammar/call_values.h"

#include "grammar/schema_conditions.h"
#include "grammar/schema_facts.h"

namespace nibble {

namespace {

constexpr int kDepthMax = 1000;

/// The schemas of a parameter, in each alternative of the whole that may hold it.
Result<std::vector<Together>> schemas_of(SchemaFacts& facts, const std::string& name) {
  std::vector<Together> made;
  for (const Alternative& parts : TRY(facts.alternatives({{&facts.root(), ""}})))
    if (may_hold(parts, name)) made.push_back(TRY(facts.property(parts, name)));
  return made;
}

Result<bool> allows(SchemaFacts& facts, const Together& together, const Json& value) {
  for (const SchemaPlace& place : together) {
    // OpenAPI's word for a null.
    const Json* nullable = value.is_null() ? place.schema->find("nullable") : nullptr;
    if (nullable != nullptr && *nullable == Json(true)) continue;
    if (!TRY(facts.valid(place, value))) return false;
  }
  return true;
}

Result<bool> strings_only(SchemaFacts& facts, const Together& together) {
  for (const Alternative& parts : TRY(facts.alternatives(together)))
    if (TRY(SchemaFacts::types(parts)) != kStringType) return false;
  return true;
}

/// JSON in one line, its numbers and strings as they are written: a double would drop digits.
std::string in_one_line(std::string_view json) {
  std::string made;
  bool inside = false;  // a string
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (!inside && (c == ' ' || c == '\t' || c == '\r' || c == '\n')) continue;
    made += c;
    if (c == '"') inside = !inside;
    if (!inside && (c == ',' || c == ':')) made += ' ';
    if (inside && c == '\\') made += json[++i];
  }
  return made;
}

Result<std::optional<std::string>> read(const Json& parameters, const std::string& name,
                                        std::string_view text) {
  const Json plain = TRY(without_conditions(parameters));
  SchemaFacts facts(plain);
  const auto parsed =
      parse_json(text, "a tool argument",
                 {.depth_max = kDepthMax, .duplicate_keys = DuplicateKeys::keep_last});
  const Json string(text);
  for (const Together& together : TRY(schemas_of(facts, name))) {
    const bool json = parsed.ok() && TRY(allows(facts, together, parsed.value()));
    const bool quoted = json && parsed.value().is_string() && TRY(strings_only(facts, together));
    if (json && !quoted) return std::optional(in_one_line(text));
    if (TRY(allows(facts, together, string))) return std::optional(string.dump());
  }
  return std::optional<std::string>();
}

}  // namespace

std::optional<std::string> call_value(const Json& parameters, const std::string& name,
                                      std::string_view text) {
  auto made = read(parameters, name, text);
  return made.ok() ? std::move(made).value() : std::nullopt;
}

}  // namespace nibble
