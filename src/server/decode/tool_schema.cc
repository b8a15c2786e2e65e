// Reads as much of JSON Schema as decides if a value is text.
#include "server/decode/tool_schema.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "grammar/call_values.h"

namespace nibble {

namespace {

/// The JSON types a schema names: through "type" (one or a list), "anyOf", "oneOf" and OpenAPI's
/// "nullable".
std::vector<std::string> declared_types(const Json& schema) {
  std::vector<std::string> types;
  const auto add = [&](const Json& type) {
    if (type.is_string()) types.push_back(type.as_string());
  };
  if (const Json* type = schema.find("type")) {
    if (type->is_array())
      std::ranges::for_each(type->as_array(), add);
    else
      add(*type);
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const Json* options = schema.find(key);
    if (options == nullptr || !options->is_array()) continue;
    for (const Json& option : options->as_array())
      if (const Json* type = option.find("type")) add(*type);
  }
  const Json* nullable = schema.find("nullable");
  if (nullable != nullptr && *nullable == Json(true) && !types.empty()) types.push_back("null");
  return types;
}

bool has(const std::vector<std::string>& types, std::string_view type) {
  return std::ranges::find(types, type) != types.end();
}

/// True if a parsed value is one of the declared types; no declaration allows all.
bool allowed(const Json& value, const std::vector<std::string>& types) {
  if (types.empty()) return true;
  if (value.is_int() && has(types, "number")) return true;
  return has(types, value.type_name());
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

/// The one of the schema's strings, of enum or const, that the text means: white space around it is
/// of the form, not of the value. Nothing: it names none, or not this.
std::optional<std::string> named_string(const Json& schema, std::string_view text) {
  std::vector<std::string> strings;
  const auto add = [&](const Json& value) {
    if (value.is_string()) strings.push_back(value.as_string());
  };
  if (const Json* options = schema.find("enum"); options != nullptr && options->is_array())
    std::ranges::for_each(options->as_array(), add);
  if (const Json* only = schema.find("const")) add(*only);
  for (const std::string_view meant : {text, trimmed(text)})
    if (has(strings, meant)) return std::string(meant);
  return std::nullopt;
}

size_t characters_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

/// True if strings of the schema, or of one of its alternatives, have bounds or a format.
bool shaped(const Json& schema) {
  for (const char* key : {"maxLength", "minLength", "pattern", "format"})
    if (schema.find(key) != nullptr) return true;
  for (const char* key : {"anyOf", "oneOf"})
    if (const Json* options = schema.find(key); options != nullptr && options->is_array())
      if (std::ranges::any_of(options->as_array(), shaped)) return true;
  return false;
}

/// A string of such a schema: white space around it is of the form, not of the value, where the
/// value would be too long or not of its pattern with it.
std::string_view shaped_string(const Json& schema, std::string_view text) {
  const Json* most = schema.find("maxLength");
  if (!shaped(schema)) return text;
  const bool fits = most != nullptr && most->is_int() && most->as_int() >= 0 &&
                    characters_of(text) <= static_cast<size_t>(most->as_int());
  return fits ? text : trimmed(text);
}

std::string json_text(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

}  // namespace

const Json* ToolSchemas::parameters(std::string_view function) const {
  if (!tools_.is_array()) return nullptr;
  for (const Json& tool : tools_.as_array()) {
    const Json* declared = tool.find("function");
    const Json* name = declared != nullptr ? declared->find("name") : nullptr;
    if (name != nullptr && name->is_string() && name->as_string() == function)
      return declared->find("parameters");
  }
  return nullptr;
}

const Json* ToolSchemas::schema(std::string_view function, std::string_view parameter) const {
  const Json* all = parameters(function);
  const Json* properties = all != nullptr ? all->find("properties") : nullptr;
  return properties != nullptr ? properties->find(parameter) : nullptr;
}

ParameterKind ToolSchemas::kind(std::string_view function, std::string_view parameter,
                                CallText call) const {
  const Json* found = schema(function, parameter);
  // Schemas that hold for other names, or for all parameters, are applied when the parameter ends.
  if (found == nullptr && call == CallText::held && parameters(function) != nullptr)
    return ParameterKind::value;
  if (found == nullptr) return ParameterKind::text;
  if (found->find("enum") != nullptr || found->find("const") != nullptr)
    return ParameterKind::value;  // one of few: looked at whole
  const auto types = declared_types(*found);
  if (types.empty()) return ParameterKind::value;
  if (shaped(*found)) return ParameterKind::value;
  const bool only_text = std::ranges::all_of(types, [](const auto& t) { return t == "string"; });
  return only_text ? ParameterKind::text : ParameterKind::value;
}

std::string ToolSchemas::json_of(std::string_view function, std::string_view parameter,
                                 std::string_view text, CallText call) const {
  const Json* all = parameters(function);
  if (call == CallText::held && all != nullptr && all->is_object())
    if (auto value = call_value(*all, std::string(parameter), text)) return *std::move(value);
  const Json* found = schema(function, parameter);
  if (found == nullptr || kind(function, parameter) == ParameterKind::text) return json_text(text);
  if (const auto named = named_string(*found, text)) return json_text(*named);
  const auto types = declared_types(*found);
  if (std::ranges::all_of(types, [](const auto& t) { return t == "string"; }) && !types.empty())
    return json_text(shaped_string(*found, text));
  const std::string_view value = trimmed(text);
  // Templates print Python's words.
  if ((value == "True" || value == "False") && (types.empty() || has(types, "boolean")))
    return value == "True" ? "true" : "false";
  const bool null = types.empty() || has(types, "null");
  if (value == "None" && null && !has(types, "string")) return "null";
  if (value == "null" && null) return "null";
  const auto parsed = parse_json(value, "a tool argument");
  if (!parsed.ok() || !allowed(parsed.value(), types))
    return json_text(shaped_string(*found, text));
  // As it is written: a double would drop digits.
  return parsed.value().is_number() ? std::string(value) : parsed.value().dump();
}

}  // namespace nibble
