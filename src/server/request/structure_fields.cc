// The fields that say what an answer must be: response_format, vLLM's structured_outputs and its
// older guided_ names, and those of llama.cpp and SGLang; forced and strict tool calls. At most one
// of them.
#include <algorithm>
#include <utility>

#include "server/request/request_fields.h"

namespace nibble {

namespace {

using Kind = GrammarSource::Kind;

/// A member that asks for a structure: of the body, or of structured_outputs.
struct Spelling {
  const char* name;
  Kind kind;
};
constexpr Spelling kTopLevel[] = {
    {"guided_json", Kind::json_schema},
    {"guided_regex", Kind::regex},
    {"guided_choice", Kind::choice},
    {"guided_grammar", Kind::ebnf},
    {"json_schema", Kind::json_schema},
    {"regex", Kind::regex},
    {"grammar", Kind::ebnf},
    {"ebnf", Kind::ebnf},
};
constexpr Spelling kInside[] = {
    {"json", Kind::json_schema},        {"regex", Kind::regex},
    {"choice", Kind::choice},           {"grammar", Kind::ebnf},
    {"json_object", Kind::json_object},
};

class StructureReader {
 public:
  explicit StructureReader(FieldReader& fields) : fields_(fields) {}

  std::optional<GrammarSource> read();
  /// The field that asked.
  const std::string& name() const { return name_; }

 private:
  void add(std::string name, GrammarSource source);
  void spelled(const std::string& name, Kind kind, const Json& value);
  void response_format(const Json& format);

  FieldReader& fields_;
  std::optional<GrammarSource> source_;
  std::string name_;
};

void StructureReader::add(std::string name, GrammarSource source) {
  if (source_)
    return fields_.refuse(
        name, {.what = concat(name, " beside ", name_), .expected = "one structure for an answer"});
  source_ = std::move(source);
  name_ = std::move(name);
}

void StructureReader::spelled(const std::string& name, Kind kind, const Json& value) {
  GrammarSource source{.kind = kind};
  if (kind == Kind::json_object) {
    if (value == Json(true)) add(name, std::move(source));
    return;
  }
  if (kind == Kind::choice) {
    for (const Json& choice : value.is_array() ? value.as_array() : Json::Array{Json()}) {
      if (!choice.is_string())
        return fields_.refuse(
            name, {.what = name, .expected = "a list of strings", .found = shown(value)});
      source.choices.push_back(choice.as_string());
    }
    return add(name, std::move(source));
  }
  if (kind != Kind::json_schema && !value.is_string())
    return fields_.refuse(name, {.what = name, .expected = "a string", .found = shown(value)});
  source.text = value.is_string() ? value.as_string() : value.dump();
  add(name, std::move(source));
}

void StructureReader::response_format(const Json& format) {
  constexpr auto kName = "response_format";
  const Json* type = format.find("type");
  const std::string kind = type != nullptr && type->is_string() ? type->as_string() : "";
  const Json* inner = format.find("json_schema");
  const Json* strict = inner != nullptr ? inner->find("strict") : nullptr;
  if (strict != nullptr && !strict->is_null() && !strict->is_bool())
    return fields_.refuse(kName, {.what = "response_format.json_schema.strict",
                                  .expected = "true or false",
                                  .found = shown(*strict)});
  if (kind == "text") return;
  const Json* schema = inner != nullptr ? inner->find("schema") : nullptr;
  if (schema == nullptr) schema = format.find("schema");  // as some clients send it
  if (kind == "json_object" && (schema == nullptr || schema->is_null()))
    return add(kName, {.kind = Kind::json_object});
  if (kind == "json_object") return spelled(kName, Kind::json_schema, *schema);
  if (kind == "json_schema" && schema != nullptr) return spelled(kName, Kind::json_schema, *schema);
  fields_.refuse(kName, {.what = kName,
                         .expected = "a type of text, json_object or json_schema (with "
                                     "json_schema.schema)",
                         .found = shown(type != nullptr ? *type : format)});
}

std::optional<GrammarSource> StructureReader::read() {
  if (const Json* format = fields_.find("response_format")) response_format(*format);
  for (const Spelling& spelling : kTopLevel)
    if (const Json* value = fields_.find(spelling.name))
      spelled(spelling.name, spelling.kind, *value);
  if (const Json* outputs = fields_.find("structured_outputs")) {
    if (!outputs->is_object())
      fields_.refuse("structured_outputs", {.what = "structured_outputs",
                                            .expected = "an object with json, regex, choice, "
                                                        "grammar or json_object",
                                            .found = shown(*outputs)});
    for (const Spelling& spelling : kInside)
      if (const Json* value = outputs->find(spelling.name); value != nullptr && !value->is_null())
        spelled(concat("structured_outputs.", spelling.name), spelling.kind, *value);
    if (!source_ && outputs->find("structural_tag") != nullptr)
      fields_.refuse("structured_outputs",
                     {.what = "structured_outputs.structural_tag is not supported"});
  }
  return source_;
}

}  // namespace

void read_structure(FieldReader& fields, const ServedModel& model, GenerationRequest& request,
                    std::optional<GrammarSource> calls) {
  StructureReader reader(fields);
  std::optional<GrammarSource> source = reader.read();
  std::string name = reader.name();
  const bool forced = calls && calls->kind == GrammarSource::Kind::tool_calls;
  // A format is of text, and a forced call has none; clients send both in every turn.
  if (forced && name == "response_format") source.reset();
  if (source && forced)
    fields.refuse(name, {.what = concat(name, " beside a forced tool call"),
                         .expected = "one structure for an answer"});
  if (!source && calls) {
    source = std::move(calls);
    name = "tools";
  }
  if (!source || fields.error()) return;
  if (!model.grammars)
    return fields.refuse(name, {.what = concat(name, ": this server has no grammars")});
  request.structure = std::move(source);
  request.structure_field = std::move(name);
}

/// A choice must have a text of so many tokens, each of which is a byte at least, unless thinking
/// comes before it.
static std::optional<ApiError> too_short(const ServedModel& model,
                                         const GenerationRequest& request) {
  if (request.structure->kind != Kind::choice) return std::nullopt;
  for (const std::vector<int32_t>& prompt : request.prompts)
    if (request.api != Api::completions && start_of(model, prompt) == StartIn::reasoning)
      return std::nullopt;
  size_t longest = 0;
  for (const std::string& text : request.structure->choices)
    longest = std::max(longest, text.size());
  if (std::cmp_less_equal(request.min_tokens, longest)) return std::nullopt;
  return ApiError::field(
      "min_tokens", {.what = "min_tokens beside a choice",
                     .expected = concat("at most ", longest, ", the bytes of its longest text"),
                     .found = concat(request.min_tokens)});
}

std::optional<ApiError> compile_structure(const ServedModel& model, GenerationRequest& request,
                                          const GrammarCompiler::Abandoned& abandoned) {
  if (!request.structure) return std::nullopt;
  if (auto error = too_short(model, request)) return error;
  auto compiled = model.grammars->compile(*request.structure, abandoned);
  if (!compiled.ok() && compiled.error().code == ErrorCode::io)
    return ApiError::from({ErrorCode::internal, compiled.error().message});
  if (!compiled.ok())
    return ApiError{.message = concat(request.structure_field, ": ", compiled.error().message),
                    .param = request.structure_field,
                    .code = "unsupported_schema"};
  request.grammar = std::move(compiled).value();
  return std::nullopt;
}

}  // namespace nibble
