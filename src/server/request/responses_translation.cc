// POST /v1/responses as a chat request. Names: OpenAI's Responses API.
#include <algorithm>

#include "server/request/chat_translation.h"
#include "server/request/request_fields.h"
#include "server/request/translation_parts.h"

namespace nibble {

namespace {

/// A request's parts in turn; the first refusal stays.
class Translation {
 public:
  Translation(const Json& body, const TranslationOptions& options)
      : body_(body), fields_(body, options.asked), images_(options.images) {}
  TranslatedBody run();

 private:
  void input();
  void item(const Json& item, size_t index);
  void message(const Json& item, const std::string& role, const std::string& where);
  Json parts_of(const Json& content, const std::string& where);
  Json tool_output(const Json& output, const std::string& where);
  void reasoning(const Json& item);
  void tools();
  void tool_choice();
  void format();
  void logprobs();
  void refuse_stored();

  const Json& body_;
  FieldReader fields_;
  ImageParts images_;
  Conversation conversation_;
  Json chat_ = Json(Json::Object{});
};

bool is_text_part(const std::string& type) {
  return type == "text" || type == "input_text" || type == "output_text" || type == "refusal" ||
         type == "summary_text" || type == "reasoning_text";
}

/// The texts of a string or of a list of parts, one after the other.
std::string joined_text(const Json& content) {
  if (content.is_string()) return content.as_string();
  std::string text;
  if (content.is_array())
    for (const Json& part : content.as_array())
      text += text_of(part, text_of(part, "type") == "refusal" ? "refusal" : "text");
  return text;
}

/// Text parts and images under chat's names; others are refused by chat's own reader, by their
/// type.
Json Translation::parts_of(const Json& content, const std::string& where) {
  if (content.is_string()) return content;
  if (!content.is_array()) {
    fields_.refuse(
        "input",
        {.what = where, .expected = "a string or a list of parts", .found = shown(content)});
    return Json("");
  }
  Json::Array parts;
  for (const Json& part : content.as_array()) {
    const std::string type = text_of(part, "type");
    const Json* url = part.find("image_url");
    if (is_text_part(type))
      parts.push_back(json_object(
          {{"type", Json("text")}, {"text", Json(joined_text(Json(Json::Array{part})))}}));
    else if (type == "input_image" && url != nullptr && images_ == ImageParts::kept)
      parts.push_back(image_part(*url, part));
    else
      parts.push_back(part);
  }
  return Json(std::move(parts));
}

/// The output of a function, where no images are served with a line of text in the place of each.
Json Translation::tool_output(const Json& output, const std::string& where) {
  Json parts = parts_of(output, where);
  if (!parts.is_array() || images_ == ImageParts::kept) return parts;
  Json::Array& list = parts.as_array();
  for (size_t i = 0; i < list.size(); ++i)
    if (text_of(list[i], "type") == "input_image") list[i] = left_out_image(i);
  return parts;
}

void Translation::message(const Json& item, const std::string& role, const std::string& where) {
  const Json* content = item.find("content");
  if (content == nullptr)
    return fields_.refuse("input", {.what = where, .expected = "content", .found = shown(item)});
  Json parts = parts_of(*content, where);
  if (role == "assistant")
    conversation_.assistant_text(joined_text(parts));
  else if (role == "system" || role == "developer")
    conversation_.system(std::move(parts));
  else if (role == "user")
    conversation_.user(std::move(parts));
  else
    fields_.refuse("input", {.what = where,
                             .expected = "a role: user, assistant, system or developer",
                             .found = shown(Json(role))});
}

/// The text itself where it is there, else its summary.
void Translation::reasoning(const Json& item) {
  for (const char* name : {"content", "summary"})
    if (const Json* parts = item.find(name); parts != nullptr)
      if (const std::string text = joined_text(*parts); !text.empty())
        return conversation_.reasoning(text);
}

void Translation::item(const Json& item, size_t index) {
  const std::string where = concat("input[", index, "]");
  const std::string type = text_of(item, "type");
  const Json* output = item.find("output");
  if (type.empty() || type == "message") {
    message(item, text_of(item, "role"), where);
  } else if (type == "function_call" || type == "custom_tool_call") {
    Json arguments = type == "function_call"
                         ? Json(text_of(item, "arguments"))
                         : json_object({{"input", Json(text_of(item, "input"))}});
    conversation_.call(text_of(item, "call_id"), text_of(item, "name"), std::move(arguments));
  } else if (type == "function_call_output" || type == "custom_tool_call_output") {
    conversation_.tool_result(text_of(item, "call_id"),
                              output != nullptr ? tool_output(*output, where) : Json(""));
  } else if (type == "reasoning") {
    reasoning(item);
  } else {
    fields_.refuse("input", {.what = concat(where, ": an item of this type is not supported"),
                             .expected = "message, reasoning, function_call, function_call_output",
                             .found = shown(Json(type))});
  }
}

void Translation::input() {
  if (const auto instructions = fields_.text("instructions");
      instructions && !instructions->empty())
    conversation_.system(Json(*instructions));
  const Json* input = fields_.find("input");
  if (input != nullptr && input->is_string()) return conversation_.user(*input);
  if (input == nullptr || !input->is_array() || input->as_array().empty())
    return fields_.refuse("input", {.what = "input",
                                    .expected = "a string or a list of items",
                                    .found = input == nullptr ? "nothing" : shown(*input)});
  for (size_t i = 0; i < input->as_array().size(); ++i) item(input->as_array()[i], i);
}

void Translation::tools() {
  const Json* tools = fields_.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array())
    return fields_.refuse("tools", {.what = "tools", .expected = "a list", .found = shown(*tools)});
  Json::Array functions;
  for (const Json& tool : tools->as_array()) {
    const Json* type = tool.find("type");
    if (type == nullptr || !type->is_string())
      return fields_.refuse(
          "tools",
          {.what = "a tool", .expected = "an object with a type of text", .found = shown(tool)});
    if (type->as_string() != "function") continue;  // web_search, namespace, custom, ...
    Json function(Json::Object{});
    copy_members(tool,
                 {{"name", "name"},
                  {"description", "description"},
                  {"parameters", "parameters"},
                  {"strict", "strict"}},
                 function);
    functions.push_back(
        json_object({{"type", Json("function")}, {"function", std::move(function)}}));
  }
  if (!functions.empty()) chat_.set("tools", Json(std::move(functions)));
}

void Translation::tool_choice() {
  const Json* choice = fields_.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_object() && text_of(*choice, "type") == "function")
    chat_.set("tool_choice",
              json_object({{"type", Json("function")},
                           {"function", json_object({{"name", Json(text_of(*choice, "name"))}})}}));
  else
    chat_.set("tool_choice", *choice);
}

/// text.format: plain text passes; the rest goes to response_format, which judges it.
void Translation::format() {
  const Json* text = fields_.find("text");
  if (text != nullptr && !text->is_object())
    return fields_.refuse("text", {.what = "text", .expected = "an object", .found = shown(*text)});
  const Json* format = text != nullptr ? text->find("format") : nullptr;
  if (format == nullptr || format->is_null()) return;
  const std::string type = text_of(*format, "type");
  if (type != "json_schema") return chat_.set("response_format", *format);
  Json schema(Json::Object{});
  copy_members(*format, {{"name", "name"}, {"schema", "schema"}, {"strict", "strict"}}, schema);
  chat_.set("response_format",
            json_object({{"type", Json(type)}, {"json_schema", std::move(schema)}}));
}

/// Log-probabilities of the answer's text are an entry of `include`, their number a field.
void Translation::logprobs() {
  const Json* include = fields_.find("include");
  const Json* top = fields_.find("top_logprobs");
  const bool wanted =
      include != nullptr && include->is_array() &&
      std::ranges::find(include->as_array(), Json("message.output_text.logprobs")) !=
          include->as_array().end();
  if (!wanted) return;
  chat_.set("logprobs", Json(true));
  if (top != nullptr) chat_.set("top_logprobs", *top);
}

void Translation::refuse_stored() {
  for (const char* name : {"previous_response_id", "conversation"})
    if (fields_.find(name) != nullptr)
      fields_.refuse(name, {.what = concat(name, ": responses are not stored here"),
                            .advice = "send the whole conversation as input, or start the server "
                                      "with --response-store"});
  fields_.unsupported("background", {Json(false)});
  fields_.unsupported("prompt");
  fields_.flag("store");
}

TranslatedBody Translation::run() {
  copy_fields(fields_,
              {{"model", "model"},
               {"max_output_tokens", "max_completion_tokens"},
               {"stream", "stream"},
               {"temperature", "temperature"},
               {"top_p", "top_p"},
               {"parallel_tool_calls", "parallel_tool_calls"},
               {"service_tier", "service_tier"},
               // These are fields of vLLM or of this server, taken under the same names.
               {"top_k", "top_k"},
               {"min_p", "min_p"},
               {"seed", "seed"},
               {"stop", "stop"},
               {"stop_token_ids", "stop_token_ids"},
               {"ignore_eos", "ignore_eos"},
               {"logit_bias", "logit_bias"},
               {"presence_penalty", "presence_penalty"},
               {"frequency_penalty", "frequency_penalty"},
               {"repetition_penalty", "repetition_penalty"},
               {"structured_outputs", "structured_outputs"},
               {"cache_salt", "cache_salt"},
               {"priority", "priority"},
               {"max_time_ms", "max_time_ms"},
               {"answer_reserve", "answer_reserve"},
               {"thinking_token_budget", "thinking_token_budget"},
               {"enable_thinking", "enable_thinking"},
               {"chat_template_kwargs", "chat_template_kwargs"},
               {"mm_processor_kwargs", "mm_processor_kwargs"}},
              chat_);
  // These are no fields of this API, but are refused for what they are.
  for (const std::string_view name : kAdapterFields) copy_members(body_, {{name, name}}, chat_);
  refuse_stored();
  input();
  tools();
  tool_choice();
  format();
  logprobs();
  if (const Json* reasoning = fields_.find("reasoning"))
    copy_members(*reasoning, {{"effort", "reasoning_effort"}}, chat_);
  if (fields_.error()) return *fields_.error();
  chat_.set("messages", conversation_.take());
  return std::move(chat_);
}

}  // namespace

Json echoed_members(const Json& responses_body) {
  Json echoed =
      json_object({{"instructions", Json()},
                   {"max_output_tokens", Json()},
                   {"metadata", Json(Json::Object{})},
                   {"parallel_tool_calls", Json(true)},
                   {"reasoning", json_object({{"effort", Json()}, {"summary", Json()}})},
                   {"temperature", Json()},
                   {"text", json_object({{"format", json_object({{"type", Json("text")}})}})},
                   {"tool_choice", Json("auto")},
                   {"tools", Json(Json::Array{})},
                   {"top_p", Json()},
                   {"truncation", Json("disabled")},
                   {"user", Json()}});
  Json given(Json::Object{});
  for (const Json::Member& member : echoed.as_object()) {
    const Json* value = responses_body.find(member.key);
    given.set(member.key, value != nullptr && !value->is_null() ? *value : member.value);
  }
  return given;
}

TranslatedBody chat_of_responses(const Json& body) { return chat_of_responses(body, {}); }

TranslatedBody chat_of_responses(const Json& body, const TranslationOptions& options) {
  return Translation(body, options).run();
}

}  // namespace nibble
