// Converts conversations to and from JSON.
#include "cli/chat/conversation.h"

#include <algorithm>

#include "cli/chat/image_file.h"

namespace nibble {

namespace {

constexpr std::string_view kParameters[] = {
    "temperature", "top_p",           "top_k", "min_p", "presence_penalty",   "frequency_penalty",
    "max_tokens",  "thinking_budget", "seed",  "stop",  "repetition_penalty", "min_tokens"};
constexpr size_t kTurnsMax = 1000;

Json message(std::string_view role, Json content) {
  return json_object({{"role", Json(role)}, {"content", std::move(content)}});
}

Json asked(const Conversation::Turn& turn) {
  return message("user", user_content(turn.question, turn.images));
}

Json reply(const Conversation::Turn& turn) {
  Json json = message("assistant", Json(turn.answer));
  if (!turn.reasoning.empty()) json.set("reasoning_content", Json(turn.reasoning));
  return json;
}

Error bad(std::string_view source, std::string_view what, std::string_view expected) {
  return make_error(ErrorCode::corrupt, {.what = concat(source, ": ", what),
                                         .expected = expected,
                                         .advice = "load what /save has written"});
}

/// A member that is a string or not there.
Result<std::string> text_member(const Json& json, std::string_view key, std::string_view source) {
  const Json* value = json.find(key);
  if (value == nullptr || value->is_null()) return std::string();
  if (!value->is_string()) return bad(source, key, "a string");
  return value->as_string();
}

/// The content of a user's message: text, or images and then text.
Result<void> read_question(const Json& json, std::string_view source, Conversation::Turn& turn) {
  const Json* content = json.find("content");
  if (content == nullptr || !content->is_array()) {
    turn.question = TRY(text_member(json, "content", source));
    return {};
  }
  for (const Json& part : content->as_array()) {
    const Json* image = part.find("image_url");
    if (image == nullptr)
      turn.question += TRY(text_member(part, "text", source));
    else
      turn.images.push_back(TRY(text_member(*image, "url", source)));
  }
  return {};
}

/// User and assistant in turn.
Result<std::vector<Conversation::Turn>> read_turns(const Json& messages, std::string_view source) {
  std::vector<Conversation::Turn> turns;
  const Json::Array& list = messages.as_array();
  if (list.size() % 2 != 0 || list.size() > 2 * kTurnsMax)
    return bad(source, "messages",
               concat("questions and answers in turn, at most ", kTurnsMax, " of each"));
  for (size_t i = 0; i < list.size(); i += 2) {
    const auto role = [&](size_t index) { return text_member(list[index], "role", source); };
    if (TRY(role(i)) != "user" || TRY(role(i + 1)) != "assistant")
      return bad(source, concat("messages[", i, "]"), "a user's, then the assistant's");
    auto& turn = turns.emplace_back();
    TRY(read_question(list[i], source, turn));
    turn.reasoning = TRY(text_member(list[i + 1], "reasoning_content", source));
    turn.answer = TRY(text_member(list[i + 1], "content", source));
  }
  return turns;
}

}  // namespace

Json Conversation::request(std::string_view question,
                           const std::vector<std::string>& images) const {
  Json body = parameters;
  if (!profile.empty()) body.set("model", Json(profile));
  if (thinking) body.set("enable_thinking", Json(*thinking));
  Json::Array messages;
  if (!system.empty()) messages.push_back(message("system", Json(system)));
  for (const Turn& turn : turns) {
    messages.push_back(asked(turn));
    messages.push_back(reply(turn));
  }
  messages.push_back(message("user", user_content(question, images)));
  body.set("messages", Json(std::move(messages)));
  return body;
}

Json Conversation::dump() const {
  Json::Array messages;
  for (const Turn& turn : turns) {
    messages.push_back(asked(turn));
    messages.push_back(reply(turn));
  }
  return json_object({{"system", Json(system)},
                      {"profile", Json(profile)},
                      {"think", thinking ? Json(*thinking) : Json()},
                      {"parameters", parameters},
                      {"messages", Json(std::move(messages))}});
}

Result<Conversation> Conversation::read(const Json& json, std::string_view source) {
  if (!json.is_object()) return bad(source, "a conversation", "a JSON object");
  Conversation read;
  read.system = TRY(text_member(json, "system", source));
  read.profile = TRY(text_member(json, "profile", source));
  if (const Json* think = json.find("think"); think != nullptr && !think->is_null()) {
    if (!think->is_bool()) return bad(source, "think", "true, false or null");
    read.thinking = think->as_bool();
  }
  if (const Json* parameters = json.find("parameters")) {
    if (!parameters->is_object()) return bad(source, "parameters", "an object");
    for (const auto& [key, value] : parameters->as_object()) {
      const bool known = std::ranges::any_of(
          kParameters, [&](std::string_view name) { return chat_parameter_field(name) == key; });
      if (!known) return bad(source, concat("parameters: ", key), "a sampling parameter");
      read.parameters.set(key, value);
    }
  }
  const Json* messages = json.find("messages");
  if (messages == nullptr || !messages->is_array()) return bad(source, "messages", "a list");
  read.turns = TRY(read_turns(*messages, source));
  return read;
}

std::span<const std::string_view> chat_parameters() { return kParameters; }

std::string_view chat_parameter_field(std::string_view parameter) {
  return parameter == "thinking_budget" ? "thinking_token_budget" : parameter;
}

}  // namespace nibble
