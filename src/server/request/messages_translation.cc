// POST /v1/messages as a chat request. Names: Anthropic's Messages API.
#include <algorithm>

#include "server/request/chat_translation.h"
#include "server/request/request_fields.h"
#include "server/request/translation_parts.h"

namespace nibble {

namespace {

constexpr std::string_view kBillingLine = "x-anthropic-billing-header:";

/// A request's parts in turn; the first refusal stays.
class Translation {
 public:
  Translation(const Json& body, const TranslationOptions& options)
      : body_(body), fields_(body, options.asked), images_(options.images) {}
  TranslatedBody run();

 private:
  void system();
  void message(const Json& message, size_t index);
  void user_block(const Json& block, const std::string& where, Json::Array& parts);
  void assistant_block(const Json& block, const std::string& where);
  void prefill(const Json& last);
  Json result_content(const Json& block, const std::string& where);
  Json image(const Json& block, const std::string& where);
  void tools();
  void tool_choice();
  void format();
  void thinking();
  void unknown_block(const Json& block, const std::string& where);

  const Json& body_;
  FieldReader fields_;
  ImageParts images_;
  Conversation conversation_;
  Json chat_ = Json(Json::Object{});
};

std::string without_billing_line(const std::string& text) {
  if (!text.starts_with(kBillingLine)) return text;
  const size_t end = text.find('\n');
  return end == std::string::npos ? "" : text.substr(end + 1);
}

void Translation::unknown_block(const Json& block, const std::string& where) {
  const Json* type = block.find("type");
  fields_.refuse("messages", {.what = concat(where, ": a block of this type is not supported"),
                              .expected = images_ == ImageParts::kept
                                              ? "text, image, thinking, tool_use or tool_result"
                                              : "text, thinking, tool_use or tool_result",
                              .found = type != nullptr ? shown(*type) : shown(block)});
}

void Translation::system() {
  const Json* system = fields_.find("system");
  if (system == nullptr) return;
  if (system->is_string()) {
    const std::string text = without_billing_line(system->as_string());
    if (!text.empty()) conversation_.system(Json(text));
    return;
  }
  if (!system->is_array())
    return fields_.refuse("system", {.what = "system",
                                     .expected = "a string or a list of text blocks",
                                     .found = shown(*system)});
  for (const Json& block : system->as_array()) {
    if (text_of(block, "type") != "text") return unknown_block(block, "system");
    Json part = block;
    part.set("text", Json(without_billing_line(text_of(block, "text"))));
    if (!text_of(part, "text").empty()) conversation_.system(Json(Json::Array{std::move(part)}));
  }
}

/// An image block as a part of a chat. The media type goes: the bytes say what they are.
Json Translation::image(const Json& block, const std::string& where) {
  const Json* source = block.find("source");
  const std::string type = source != nullptr ? text_of(*source, "type") : "";
  const Json* data = source != nullptr ? source->find("data") : nullptr;
  const Json* url = source != nullptr ? source->find("url") : nullptr;
  if (type == "base64" && data != nullptr && data->is_string())
    return image_part(Json(concat("data:;base64,", data->as_string())), block);
  if (type == "url" && url != nullptr && url->is_string()) return image_part(*url, block);
  fields_.refuse("messages", {.what = concat(where, ".source"),
                              .expected = "a type of base64 with data, or of url with url",
                              .found = source == nullptr ? "nothing" : shown(Json(type)),
                              .advice = "files are not stored here"});
  return Json("");
}

Json Translation::result_content(const Json& block, const std::string& where) {
  const Json* content = block.find("content");
  if (content == nullptr || content->is_null()) return Json("");
  if (!content->is_array()) return *content;
  Json::Array parts;
  for (const Json& part : content->as_array()) {
    const std::string type = text_of(part, "type");
    if (type != "text" && type != "image") unknown_block(part, where + ".content");
    if (type != "image")
      parts.push_back(part);
    else if (images_ == ImageParts::kept)
      parts.push_back(image(part, where + ".content"));
    else
      parts.push_back(left_out_image(parts.size()));
  }
  return Json(std::move(parts));
}

void Translation::user_block(const Json& block, const std::string& where, Json::Array& parts) {
  const std::string type = text_of(block, "type");
  if (type == "text") {
    parts.push_back(block);
  } else if (type == "image" && images_ == ImageParts::kept) {
    parts.push_back(image(block, where));
  } else if (type == "tool_result") {
    if (!parts.empty()) conversation_.user(Json(std::exchange(parts, {})));
    conversation_.tool_result(text_of(block, "tool_use_id"), result_content(block, where));
    conversation_.mark(block);
  } else {
    unknown_block(block, where);
  }
}

void Translation::assistant_block(const Json& block, const std::string& where) {
  const std::string type = text_of(block, "type");
  if (type == "text") {
    conversation_.assistant_text(text_of(block, "text"));
  } else if (type == "thinking") {
    conversation_.reasoning(text_of(block, "thinking"));
  } else if (type == "tool_use") {
    const Json* input = block.find("input");
    conversation_.call(text_of(block, "id"), text_of(block, "name"),
                       input != nullptr && input->is_object() ? *input : Json(Json::Object{}));
  } else if (type != "redacted_thinking") {  // written by another model: unreadable here
    unknown_block(block, where);
  }
  conversation_.mark(block);
}

void Translation::message(const Json& message, size_t index) {
  const std::string where = concat("messages[", index, "]");
  const std::string role = text_of(message, "role");
  const Json* content = message.find("content");
  const bool readable = content != nullptr && (content->is_string() || content->is_array());
  if (!readable || (role != "user" && role != "assistant" && role != "system"))
    return fields_.refuse(
        "messages", {.what = where,
                     .expected = "a role (user or assistant) and content (a string or blocks)",
                     .found = shown(message)});
  // A reminder in the middle stays there: the prompt before it is in the prefix cache.
  if (role == "system")
    return conversation_.begun() ? conversation_.user(*content) : conversation_.system(*content);
  conversation_.end_turn();
  if (content->is_string()) {
    if (role == "user") return conversation_.user(*content);
    return conversation_.assistant_text(content->as_string());
  }
  Json::Array parts;
  for (size_t i = 0; i < content->as_array().size(); ++i) {
    const Json& block = content->as_array()[i];
    const std::string block_where = concat(where, ".content[", i, "]");
    if (role == "user")
      user_block(block, block_where, parts);
    else
      assistant_block(block, block_where);
  }
  if (!parts.empty()) conversation_.user(Json(std::move(parts)));
}

/// A last message of the assistant that ends with text is continued. As in Anthropic's own
/// service not with thinking, which would have to come before that text.
void Translation::prefill(const Json& last) {
  const Json* content = last.find("content");
  if (text_of(last, "role") != "assistant" || content == nullptr) return;
  const bool blocks = content->is_array() && !content->as_array().empty();
  if (!content->is_string() && !(blocks && text_of(content->as_array().back(), "type") == "text"))
    return;
  if (chat_.find("enable_thinking") != nullptr && *chat_.find("enable_thinking") == Json(true))
    return fields_.refuse("messages",
                          {.what = "messages end with the role assistant, with thinking",
                           .expected = "a last message of the role user, or thinking disabled",
                           .found = "both"});
  chat_.set("continue_final_message", Json(true));
}

void Translation::tools() {
  const Json* tools = fields_.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array())
    return fields_.refuse("tools", {.what = "tools", .expected = "a list", .found = shown(*tools)});
  Json::Array functions;
  for (const Json& tool : tools->as_array()) {
    const std::string type = text_of(tool, "type");
    if (!type.empty() && type != "custom") continue;  // web_search_20250305 and the like
    Json function(Json::Object{});
    copy_members(tool,
                 {{"name", "name"}, {"description", "description"}, {"input_schema", "parameters"}},
                 function);
    Json made = json_object({{"type", Json("function")}, {"function", std::move(function)}});
    copy_members(tool, {{"cache_control", "cache_control"}}, made);
    functions.push_back(std::move(made));
  }
  if (!functions.empty()) chat_.set("tools", Json(std::move(functions)));
}

void Translation::tool_choice() {
  const Json* choice = fields_.find("tool_choice");
  if (choice == nullptr) return;
  const std::string type = text_of(*choice, "type");
  if (type == "auto" || type == "none")
    chat_.set("tool_choice", Json(type));
  else if (type == "any")
    chat_.set("tool_choice", Json("required"));
  else if (type == "tool")
    chat_.set("tool_choice",
              json_object({{"type", Json("function")},
                           {"function", json_object({{"name", Json(text_of(*choice, "name"))}})}}));
  else
    fields_.refuse("tool_choice", {.what = "tool_choice",
                                   .expected = "a type of auto, any, tool or none",
                                   .found = shown(*choice)});
  FieldReader inner(*choice);
  if (inner.flag("disable_parallel_tool_use").value_or(false))
    chat_.set("parallel_tool_calls", Json(false));
  if (inner.error()) fields_.set_error(*inner.error());
}

/// output_config.format, and its older place output_format.
void Translation::format() {
  const Json* config = fields_.find("output_config");
  const Json* format = config != nullptr ? config->find("format") : nullptr;
  if (format == nullptr || format->is_null()) format = fields_.find("output_format");
  if (format == nullptr || format->is_null()) return;
  const Json* schema = format->find("schema");
  if (text_of(*format, "type") != "json_schema" || schema == nullptr)
    return fields_.refuse("output_config", {.what = "output_config.format",
                                            .expected = "a type of json_schema and a schema",
                                            .found = shown(*format)});
  chat_.set(
      "response_format",
      json_object({{"type", Json("json_schema")},
                   {"json_schema", json_object({{"name", Json("output")}, {"schema", *schema}})}}));
}

void Translation::thinking() {
  const Json* thinking = fields_.find("thinking");
  const std::string type = thinking != nullptr ? text_of(*thinking, "type") : "disabled";
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    return fields_.refuse("thinking", {.what = "thinking",
                                       .expected = "a type of enabled, adaptive or disabled",
                                       .found = shown(*thinking)});
  chat_.set("enable_thinking", Json(type != "disabled"));
  if (type == "enabled")
    copy_members(*thinking, {{"budget_tokens", "thinking_token_budget"}}, chat_);
}

/// An error in the words by which Anthropic's client knows to send the whole conversation instead.
ApiError no_threads() {
  return {.message =
              "thread: conversations are not kept here; send the whole conversation as "
              "messages, without thread",
          .param = "thread",
          .details = json_object({{"error_code", Json("thread_unsupported_request")}})};
}

TranslatedBody Translation::run() {
  if (fields_.find("thread") != nullptr) return no_threads();
  copy_fields(fields_,
              {{"model", "model"},
               {"max_tokens", "max_tokens"},
               {"stop_sequences", "stop"},
               {"stream", "stream"},
               {"temperature", "temperature"},
               {"top_p", "top_p"},
               {"top_k", "top_k"},
               // These fields are not Anthropic's but this server's: taken under the same names.
               {"min_p", "min_p"},
               {"seed", "seed"},
               {"cache_salt", "cache_salt"},
               {"priority", "priority"},
               {"max_time_ms", "max_time_ms"},
               {"answer_reserve", "answer_reserve"},
               {"chat_template_kwargs", "chat_template_kwargs"},
               {"mm_processor_kwargs", "mm_processor_kwargs"}},
              chat_);
  // These are no fields of this API, but are refused for what they are.
  for (const std::string_view name : kAdapterFields) copy_members(body_, {{name, name}}, chat_);
  system();
  const Json* messages = fields_.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->as_array().empty())
    fields_.refuse("messages", {.what = "messages",
                                .expected = "a list of at least one",
                                .found = messages == nullptr ? "nothing" : shown(*messages)});
  else
    for (size_t i = 0; i < messages->as_array().size(); ++i) message(messages->as_array()[i], i);
  tools();
  tool_choice();
  format();
  thinking();
  if (fields_.error()) return *fields_.error();
  prefill(messages->as_array().back());
  if (fields_.error()) return *fields_.error();
  chat_.set("messages", conversation_.take());
  return std::move(chat_);
}

}  // namespace

TranslatedBody chat_of_messages(const Json& body) { return chat_of_messages(body, {}); }

TranslatedBody chat_of_messages(const Json& body, const TranslationOptions& options) {
  return Translation(body, options).run();
}

}  // namespace nibble
