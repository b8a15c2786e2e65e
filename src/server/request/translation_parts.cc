// Turns and system prompts.
#include "server/request/translation_parts.h"

#include <algorithm>
#include <iterator>

namespace nibble {

namespace {

void append_text(Json& message, std::string_view name, std::string_view text) {
  message.set(std::string(name), Json(text_of(message, name) + std::string(text)));
}

}  // namespace

Json left_out_image(size_t index) {
  constexpr std::string_view kLine =
      "[An image was left out here: this server gives the model text only.]\n";
  return json_object(
      {{"type", Json("text")}, {"text", Json(concat(index == 0 ? "" : "\n", kLine))}});
}

Json image_part(Json url, const Json& block) {
  Json holder = json_object({{"url", std::move(url)}});
  if (const Json* detail = block.find("detail")) holder.set("detail", *detail);
  Json part = json_object({{"type", Json("image_url")}, {"image_url", std::move(holder)}});
  copy_members(block, {{"cache_control", "cache_control"}}, part);
  return part;
}

void Conversation::add(std::string_view role, Json content) {
  in_turn_ = false;
  messages_.push_back(json_object({{"role", Json(role)}, {"content", std::move(content)}}));
}

void Conversation::system(Json content) {
  Json::Array parts;
  if (content.is_array())
    parts = std::move(content.as_array());
  else
    parts.push_back(json_object({{"type", Json("text")}, {"text", std::move(content)}}));
  if (const std::string text = parts.empty() ? "" : text_of(parts.front(), "text");
      !system_.empty() && !text.empty())
    parts.front().set("text", Json("\n\n" + text));
  std::ranges::move(parts, std::back_inserter(system_));
}

void Conversation::user(Json content) { add("user", std::move(content)); }

Json& Conversation::turn() {
  if (!in_turn_) add("assistant", Json(""));
  in_turn_ = true;
  return messages_.back();
}

void Conversation::reasoning(std::string_view text) {
  append_text(turn(), "reasoning_content", text);
}

void Conversation::assistant_text(std::string_view text) { append_text(turn(), "content", text); }

void Conversation::call(std::string id, std::string name, Json arguments) {
  Json& message = turn();
  if (message.find("tool_calls") == nullptr) message.set("tool_calls", Json(Json::Array{}));
  message.find("tool_calls")
      ->as_array()
      .push_back(json_object({{"id", Json(std::move(id))},
                              {"type", Json("function")},
                              {"function", json_object({{"name", Json(std::move(name))},
                                                        {"arguments", std::move(arguments)}})}}));
}

void Conversation::tool_result(std::string id, Json content) {
  add("tool", std::move(content));
  messages_.back().set("tool_call_id", Json(std::move(id)));
}

void Conversation::mark(const Json& block) {
  const Json* mark = block.find("cache_control");
  if (mark != nullptr && !messages_.empty()) messages_.back().set("cache_control", *mark);
}

Json Conversation::take() {
  if (!system_.empty())
    messages_.insert(messages_.begin(), json_object({{"role", Json("system")},
                                                     {"content", Json(std::move(system_))}}));
  return Json(std::move(messages_));
}

void copy_fields(const FieldReader& from,
                 std::initializer_list<std::pair<std::string_view, std::string_view>> names,
                 Json& to) {
  for (const auto& [name, chat_name] : names)
    if (const Json* value = from.find(name)) to.set(std::string(chat_name), *value);
}

void copy_members(const Json& from,
                  std::initializer_list<std::pair<std::string_view, std::string_view>> names,
                  Json& to) {
  copy_fields(FieldReader(from), names, to);
}

}  // namespace nibble
