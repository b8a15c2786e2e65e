// Messages, tools and template variables of a chat request.
#include <chrono>
#include <ctime>

#include "server/request/cache_places.h"
#include "server/request/chat_prompt.h"
#include "server/request/chat_translation.h"
#include "server/request/request_fields.h"

namespace nibble {

namespace {

/// Local wall-clock time, for templates that print the date.
std::chrono::local_seconds local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm fields = {};
  ::localtime_r(&now, &fields);
  return std::chrono::local_seconds(std::chrono::seconds(::timegm(&fields)));
}

/// Content is a string, null, or a list of text parts and of words that take_media() has left.
void check_content(FieldReader& fields, const Json& message, size_t index, ImageParts images) {
  const Json* content = message.find("content");
  if (content == nullptr || content->is_null() || content->is_string()) return;
  const std::string where = concat("messages[", index, "].content");
  if (!content->is_array())
    return fields.refuse(
        "messages",
        {.what = where, .expected = "a string or a list of parts", .found = shown(*content)});
  for (const Json& part : content->as_array()) {
    const Json* type = part.find("type");
    const bool named = type != nullptr && type->is_string();
    const std::string name = named ? type->as_string() : "";
    const Json* text = part.find("text");
    const bool is_text = (name == "text" || name == "input_text" || name == "output_text") &&
                         text != nullptr && text->is_string();
    if (is_text || (images == ImageParts::kept && (name == "image" || name == "video"))) continue;
    if (named && name != "text")
      return fields.refuse("messages",
                           {.what = concat(where, ": parts of type ", shown(*type),
                                           " are not supported by this server"),
                            .advice = images == ImageParts::kept ? "send text, images and videos"
                                                                 : "send text only"});
    return fields.refuse("messages", {.what = where,
                                      .expected = "parts {\"type\": \"text\", \"text\": \"...\"}",
                                      .found = shown(part)});
  }
}

const Json* read_messages(FieldReader& fields, const RequestLimits& limits, ImageParts images) {
  const Json* messages = fields.find("messages");
  const bool list = messages != nullptr && messages->is_array() && !messages->as_array().empty();
  if (!list || messages->as_array().size() > limits.messages_max) {
    fields.refuse("messages", {.what = "messages",
                               .expected = concat("a list of 1 to ", limits.messages_max),
                               .found = messages == nullptr    ? "nothing"
                                        : messages->is_array() ? concat(messages->as_array().size())
                                                               : shown(*messages)});
    return nullptr;
  }
  for (size_t i = 0; i < messages->as_array().size(); ++i) {
    const Json& message = messages->as_array()[i];
    const Json* role = message.find("role");
    if (role == nullptr || !role->is_string())
      fields.refuse("messages", {.what = concat("messages[", i, "]"),
                                 .expected = "an object with a role",
                                 .found = shown(message)});
    check_content(fields, message, i, images);
  }
  return messages;
}

/// A list of {"type":"function","function":{"name":...}}. Other types of tool are left out, since
/// clients send some that only their own service knows.
/// Refuses a description that is no text, and parameters that are no schema.
void check_function(FieldReader& fields, const std::string& place, const Json& function) {
  const Json* description = function.find("description");
  if (description != nullptr && !description->is_null() && !description->is_string())
    fields.refuse("tools", {.what = concat("the description of ", place),
                            .expected = "a string or null",
                            .found = shown(*description)});
  const Json* parameters = function.find("parameters");
  if (parameters != nullptr && !parameters->is_null() && !parameters->is_object())
    fields.refuse("tools", {.what = concat("the parameters of ", place),
                            .expected = "an object, the JSON schema of the arguments, or null",
                            .found = shown(*parameters)});
}

Json read_tools(FieldReader& fields, const RequestLimits& limits) {
  const Json* tools = fields.find("tools");
  if (tools == nullptr) return {};
  if (!tools->is_array() || tools->as_array().size() > limits.tools_max) {
    fields.refuse("tools", {.what = "tools",
                            .expected = concat("a list of at most ", limits.tools_max),
                            .found = shown(*tools)});
    return {};
  }
  Json::Array kept;
  for (size_t i = 0; i < tools->as_array().size(); ++i) {
    const Json& tool = tools->as_array()[i];
    const Json* type = tool.find("type");
    if (type != nullptr && type->is_string() && type->as_string() != "function") continue;
    const Json* function = tool.find("function");
    const Json* name = function != nullptr ? function->find("name") : nullptr;
    if (name == nullptr || !name->is_string() || name->as_string().empty())
      fields.refuse("tools", {.what = concat("tools[", i, "]"),
                              .expected = "{\"type\": \"function\", \"function\": {\"name\": ...}}",
                              .found = shown(tool)});
    else
      check_function(fields, concat("tools[", i, "]"), *function);
    kept.push_back(tool);
  }
  return kept.empty() ? Json() : Json(std::move(kept));
}

enum class ToolChoice : uint8_t { none, automatic, required };
struct ReadToolChoice {
  ToolChoice choice = ToolChoice::automatic;
  std::string function;  // the one that must be called; empty: any
};

/// "auto", "none", "required", or {"type":"function","function":{"name":...}}.
ReadToolChoice read_tool_choice(FieldReader& fields, const Json& tools) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == Json("auto")) return {};
  if (*choice == Json("none")) return {.choice = ToolChoice::none};
  ReadToolChoice read{.choice = ToolChoice::required};
  const Json* function = choice->find("function");
  const Json* name = function != nullptr ? function->find("name") : nullptr;
  const bool named = name != nullptr && name->is_string();
  if (named) read.function = name->as_string();
  if (!named && *choice != Json("required"))
    fields.refuse("tool_choice", {.what = "tool_choice",
                                  .expected = "auto, none, required, or {\"type\": \"function\", "
                                              "\"function\": {\"name\": ...}}",
                                  .found = shown(*choice)});
  bool known = false;
  if (tools.is_array())
    for (const Json& tool : tools.as_array())
      known |= read.function.empty() || *tool.find("function")->find("name") == Json(read.function);
  if (!known)
    fields.refuse("tool_choice", {.what = "tool_choice asks for a call",
                                  .expected = "such a function among tools",
                                  .found = read.function.empty() ? "none" : read.function});
  return read;
}

/// The grammar that calls require: calls are forced, or must be sound because a tool is strict.
std::optional<GrammarSource> call_grammar(const ServedModel& model, const Json& tools,
                                          const ReadToolChoice& choice, bool parallel) {
  if (!model.tags.tool_begin || !model.tags.tool_end) return std::nullopt;
  GrammarSource source{.kind = GrammarSource::Kind::free_calls,
                       .parallel_calls = parallel,
                       .tool_begin = *model.tags.tool_begin,
                       .tool_end = *model.tags.tool_end};
  bool strict = false;
  for (const Json& tool : tools.as_array()) {
    const Json& function = *tool.find("function");
    const std::string& name = function.find("name")->as_string();
    const Json* parameters = function.find("parameters");
    const Json* is_strict = function.find("strict");
    strict |= is_strict != nullptr && *is_strict == Json(true);
    if (choice.function.empty() || choice.function == name)
      source.tools.push_back({name, parameters != nullptr ? *parameters : Json()});
  }
  if (choice.choice == ToolChoice::required) source.kind = GrammarSource::Kind::tool_calls;
  if (choice.choice != ToolChoice::required && !strict) return std::nullopt;
  return source;
}

/// The name that thinking has in the answer.
void read_reasoning_field(FieldReader& fields, GenerationRequest& request) {
  request.include_reasoning = fields.flag("include_reasoning").value_or(true);
  const auto name = fields.text("reasoning_field");
  if (!name) return;
  request.reasoning_field = reasoning_field_of(*name);
  if (!request.reasoning_field)
    fields.refuse("reasoning_field", {.what = "reasoning_field",
                                      .expected = "both, reasoning or reasoning_content",
                                      .found = shown(Json(*name))});
}

/// Server defaults, then the request's chat_template_kwargs, then enable_thinking and
/// reasoning_effort at the top level.
Json read_kwargs(FieldReader& fields, const ServedModel& model) {
  Json kwargs = model.template_kwargs.is_object() ? model.template_kwargs : Json(Json::Object{});
  const auto effort = fields.text("reasoning_effort");
  if (effort) {
    kwargs.set("reasoning_effort", Json(*effort));
    if (*effort == "none") kwargs.set("enable_thinking", Json(false));
  }
  if (fields.find("enable_thinking") != nullptr)
    kwargs.set("enable_thinking", Json(fields.flag("enable_thinking").value_or(true)));
  if (const Json* given = fields.find("chat_template_kwargs")) {
    if (!given->is_object())
      fields.refuse(
          "chat_template_kwargs",
          {.what = "chat_template_kwargs", .expected = "an object", .found = shown(*given)});
    else
      for (const auto& [key, value] : given->as_object()) kwargs.set(key, value);
  }
  return kwargs;
}

/// Where the answer begins: add_generation_prompt false has a meaning only for a last message that
/// is continued, and is said by continue_final_message alone as well.
void read_answer_start(FieldReader& fields, GenerationRequest& request) {
  const bool continued = fields.flag("continue_final_message").value_or(false);
  const auto added = fields.flag("add_generation_prompt");
  if (continued) request.answer_start = AnswerStart::continued;
  if (continued && added.value_or(false))
    fields.refuse("add_generation_prompt",
                  {.what = "add_generation_prompt beside continue_final_message",
                   .expected = "false",
                   .found = "true",
                   .advice = "the answer goes on in the last message or begins a new one"});
  if (!continued && !added.value_or(true))
    fields.refuse("add_generation_prompt",
                  {.what = "add_generation_prompt false without continue_final_message",
                   .advice = "leave it out, or set continue_final_message"});
}

}  // namespace

std::optional<GrammarSource> read_chat_fields(FieldReader& fields, const ServedModel& model,
                                              const RequestLimits& limits,
                                              GenerationRequest& request) {
  if (!model.chat_template)
    fields.refuse("messages", {.what = "this checkpoint has no chat template",
                               .advice = "use /v1/completions"});
  const ImageParts kept = model.images ? ImageParts::kept : ImageParts::refused;
  const Json* messages = read_messages(fields, limits, kept);
  Json tools = read_tools(fields, limits);
  const ReadToolChoice choice = read_tool_choice(fields, tools);
  const Json kwargs = read_kwargs(fields, model);
  const bool parallel = fields.flag("parallel_tool_calls").value_or(true);
  read_reasoning_field(fields, request);
  fields.unsupported("chat_template");
  read_answer_start(fields, request);
  fields.unsupported("documents", {Json(Json::Array{})});
  fields.unsupported("functions", {Json(Json::Array{})});
  fields.unsupported("audio");
  const Json settings = image_settings(fields, model);
  fields.unsupported("modalities", {Json(Json::Array{Json("text")})});
  if (fields.error() || messages == nullptr) return std::nullopt;

  const bool tools_marked = !tools.is_null() && strip_cache_marks(tools);
  const bool with_tools = !tools.is_null() && choice.choice != ToolChoice::none;
  std::optional<GrammarSource> calls;
  if (with_tools) {
    calls = call_grammar(model, tools, choice, parallel);
    request.parse_tools = ParseTools::yes;
    request.schemas = ToolSchemas(tools);
    // One call only: the answer ends where it does.
    if (!parallel && model.tags.tool_end) request.stop_ids.push_back(*model.tags.tool_end);
  }
  const auto fail = [&](const Error& error) {
    ApiError answer = ApiError::from(error);
    if (error.code == ErrorCode::corrupt) answer.status = 400;
    answer.param = "messages";
    fields.set_error(std::move(answer));
    return std::optional<GrammarSource>();
  };
  auto prepared = prepare_messages(*messages);
  if (!prepared.ok()) return fail(prepared.error());
  ChatMessages chat = join_system_messages(std::move(prepared).value());
  const bool anew = request.answer_start == AnswerStart::anew;
  const TemplateInput input{
      .messages = std::move(chat.list),
      .tools = with_tools ? std::move(tools) : Json(),
      .documents = {},
      .kwargs = kwargs,
      .generation_prompt = anew ? GenerationPrompt::add : GenerationPrompt::omit,
      .now = local_now()};
  const auto rendered = render_chat(*model.chat_template, input, chat.places, request.answer_start);
  if (const auto* refused = std::get_if<ApiError>(&rendered)) {
    fields.set_error(*refused);
    return std::nullopt;
  }
  const std::vector<TextPiece>& pieces = std::get<RenderedPrompt>(rendered).pieces;
  size_t bytes = 0;
  for (const TextPiece& piece : pieces) bytes += piece.text.size();
  if (!check_prompt_bytes(fields, model, "messages", bytes)) return std::nullopt;
  auto ids = model.tokenizer.encode(pieces);
  if (!ids.ok()) return fail(ids.error());
  request.cache = find_cache_places(*model.chat_template, model.tokenizer, input, pieces,
                                    ids.value(), tools_marked ? ToolsMarked::yes : ToolsMarked::no);
  request.prompts.push_back(std::move(ids).value());
  if (auto error = place_images(model, settings, request)) fields.set_error(*std::move(error));
  return calls;
}

}  // namespace nibble
