// Chat templates: the variables a template sees, and messages made ready for it.
#include "text/chat_template.h"

#include <algorithm>

#include "text/jinja/interpreter.h"

namespace nibble {

namespace {

using jinja::Runtime;
using jinja::Value;
using jinja::Variables;

/// A role of this list is the protocol's word, not the user's: templates build tokens from it.
bool is_known_role(const Json& role) {
  static constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  return role.is_string() && std::ranges::find(kRoles, role.as_string()) != std::end(kRoles);
}

Result<Value> message_value(Runtime& runtime, const Json& message) {
  if (!message.is_object()) return jinja::from_json(runtime, message, Origin::from_user);
  std::vector<jinja::DictEntry> entries;
  for (const auto& [key, value] : message.as_object()) {
    const bool word = key == "role" && is_known_role(value);
    const Origin origin = word ? Origin::from_template : Origin::from_user;
    entries.push_back({Value(jinja::Text(key, Origin::from_user)),
                       TRY(jinja::from_json(runtime, value, origin))});
  }
  Value out = TRY(runtime.dict(std::move(entries)));
  return out.tag(Origin::from_user);
}

Result<Value> messages_value(Runtime& runtime, const Json& messages) {
  if (!messages.is_array()) {
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "messages", .expected = "a list of messages", .found = messages.type_name()});
  }
  std::vector<Value> items;
  for (const Json& message : messages.as_array()) {
    items.push_back(TRY(message_value(runtime, message)));
  }
  Value out = TRY(runtime.list(std::move(items)));
  return out.tag(Origin::from_user);
}

Result<void> add_members(Runtime& runtime, const Json& object, std::string_view what, Origin origin,
                         Variables& variables) {
  static constexpr std::string_view kReserved[] = {"messages", "tools", "documents",
                                                   "add_generation_prompt"};
  if (object.is_null()) return {};
  if (!object.is_object()) {
    return make_error(ErrorCode::invalid_argument,
                      {.what = what, .expected = "an object", .found = object.type_name()});
  }
  for (const auto& [key, member] : object.as_object()) {
    if (std::ranges::find(kReserved, key) != std::end(kReserved)) {
      return make_error(ErrorCode::invalid_argument,
                        {.what = concat(what, " must not set '", key, "'"),
                         .advice = "the request has its own field for it"});
    }
    Value value = TRY(jinja::from_json(runtime, member, origin));
    const auto known = std::ranges::find(variables, key, &Variables::value_type::first);
    if (known != variables.end()) {
      known->second = std::move(value);
    } else {
      variables.emplace_back(key, std::move(value));
    }
  }
  return {};
}

Result<Variables> make_variables(Runtime& runtime, const TemplateInput& input,
                                 const Json& special_tokens) {
  Variables out;
  TRY(add_members(runtime, special_tokens, "special tokens", Origin::from_template, out));
  TRY(add_members(runtime, input.kwargs, "chat_template_kwargs", Origin::from_user, out));
  out.emplace_back("messages", TRY(messages_value(runtime, input.messages)));
  out.emplace_back("tools", TRY(jinja::from_json(runtime, input.tools, Origin::from_user)));
  out.emplace_back("documents", TRY(jinja::from_json(runtime, input.documents, Origin::from_user)));
  out.emplace_back("add_generation_prompt",
                   Value(input.generation_prompt == GenerationPrompt::add));
  return out;
}

Result<void> decode_arguments(Json& call, std::string_view where) {
  Json* function = call.find("function");
  Json* arguments = (function != nullptr ? function : &call)->find("arguments");
  if (arguments == nullptr || arguments->is_null() || arguments->is_object()) return {};
  if (!arguments->is_string())
    return make_error(ErrorCode::invalid_argument, {.what = concat(where, ".arguments"),
                                                    .expected = "the text of a JSON object",
                                                    .found = arguments->type_name()});
  const std::string text = arguments->as_string();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    *arguments = Json(Json::Object{});
    return {};
  }
  // A call that was cut off stays in its conversation, which a refusal would end for good. The
  // model reads the text as it was.
  auto decoded = parse_json(text, "arguments");
  if (decoded.ok() && decoded.value().is_object())
    *arguments = std::move(decoded).value();
  else
    *arguments = json_object({{"arguments", Json(text)}});
  return {};
}

Result<void> prepare_message(Json& message, std::string_view where) {
  if (!message.is_object()) {
    return make_error(ErrorCode::invalid_argument,
                      {.what = where, .expected = "an object", .found = message.type_name()});
  }
  const Json* reasoning = message.find("reasoning");
  if (reasoning != nullptr && reasoning->is_string() &&
      message.find("reasoning_content") == nullptr) {
    message.set("reasoning_content", Json(reasoning->as_string()));
  }
  const Json* answered = message.find("tool_call_id");
  if (answered != nullptr && !answered->is_null() && !answered->is_string())
    return make_error(ErrorCode::invalid_argument, {.what = concat(where, ".tool_call_id"),
                                                    .expected = "a string or null",
                                                    .found = answered->type_name()});
  Json* calls = message.find("tool_calls");
  if (calls == nullptr || calls->is_null()) return {};
  if (!calls->is_array())
    return make_error(ErrorCode::invalid_argument, {.what = concat(where, ".tool_calls"),
                                                    .expected = "a list of calls or null",
                                                    .found = calls->type_name()});
  for (size_t i = 0; i < calls->as_array().size(); ++i) {
    TRY(decode_arguments(calls->as_array()[i], concat(where, ".tool_calls[", i, "]")));
  }
  return {};
}

}  // namespace

std::string RenderedPrompt::flat() const {
  std::string out;
  for (const TextPiece& piece : pieces) out += piece.text;
  return out;
}

Result<ChatTemplate> ChatTemplate::compile(std::string_view source, std::string_view name,
                                           Options options) {
  ChatTemplate out;
  out.name_ = name;
  out.options_ = std::move(options);
  jinja::Program program = TRY(jinja::Program::parse(source, name, out.options_.limits));
  out.program_ = std::make_shared<const jinja::Program>(std::move(program));
  return out;
}

Result<RenderedPrompt> ChatTemplate::render(const TemplateInput& input) const {
  Runtime runtime(options_.limits, input.now);
  Variables variables = TRY(make_variables(runtime, input, options_.special_tokens));
  const jinja::Text text = TRY(program_->render(runtime, std::move(variables)));
  return RenderedPrompt{text.pieces()};
}

Result<Json> prepare_messages(const Json& messages) {
  if (!messages.is_array()) {
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "messages", .expected = "a list of messages", .found = messages.type_name()});
  }
  Json out = messages;
  for (size_t i = 0; i < out.as_array().size(); ++i) {
    TRY(prepare_message(out.as_array()[i], concat("messages[", i, "]")));
  }
  return out;
}

}  // namespace nibble
