// A template says what it refuses but not where: the message is found by rendering shorter
// conversations.
#include "server/request/chat_prompt.h"

#include <algorithm>

#include "server/request/field_reader.h"
#include "server/request/translation_parts.h"

namespace nibble {

namespace {

constexpr std::string_view kBetween = "\n\n";

bool is_system(const Json& message) {
  const std::string role = text_of(message, "role");
  return role == "system" || role == "developer";
}

/// The content as text parts; a mark of the message goes to the last of them.
Json::Array parts_of(const Json& message) {
  const Json* content = message.find("content");
  Json::Array parts;
  if (content != nullptr && content->is_array())
    parts = content->as_array();
  else if (content != nullptr && content->is_string())
    parts.push_back(json_object({{"type", Json("text")}, {"text", *content}}));
  std::erase_if(parts, [](const Json& part) {
    return text_of(part, "text").empty() && text_of(part, "type") != "image";
  });
  const Json* mark = message.find("cache_control");
  if (mark != nullptr && !parts.empty()) parts.back().set("cache_control", *mark);
  return parts;
}

/// The first `count` messages, then a user who says next to nothing.
TemplateInput first_messages(const TemplateInput& input, size_t count) {
  TemplateInput other = input;
  Json::Array& messages = other.messages.as_array();
  messages.resize(count);
  messages.push_back(json_object({{"role", Json("user")}, {"content", Json(".")}}));
  return other;
}

/// The message with which conversations begin to fail with `error`; nothing if it is not due to
/// one message.
std::optional<size_t> refused_message(const ChatTemplate& chat_template, const TemplateInput& input,
                                      const Error& error) {
  const auto fails = [&](size_t count) {
    const auto rendered = chat_template.render(first_messages(input, count));
    return !rendered.ok() && rendered.error().message == error.message;
  };
  size_t accepted = 0, refused = input.messages.as_array().size();
  if (fails(accepted) || !fails(refused)) return std::nullopt;
  while (refused - accepted > 1) {
    const size_t middle = accepted + (refused - accepted) / 2;
    (fails(middle) ? refused : accepted) = middle;
  }
  return accepted;
}

ApiError template_refusal(const ChatTemplate& chat_template, const TemplateInput& input,
                          const std::vector<size_t>& places, const Error& error) {
  ApiError answer = ApiError::from(error);
  answer.param = "messages";
  if (error.code == ErrorCode::corrupt) answer.status = 400;
  if (error.code != ErrorCode::invalid_argument) return answer;
  const bool asked = std::ranges::any_of(input.messages.as_array(), [](const Json& message) {
    return text_of(message, "role") == "user";
  });
  // Where nobody asks, that is what templates look at first.
  const auto with_user = chat_template.render(first_messages(input, places.size()));
  const Error& cause = asked || with_user.ok() ? error : with_user.error();
  const auto says = [](const Error& refusal) {
    return concat("one of which it says ", shown(Json(refusal.message)));
  };
  if (const auto at = refused_message(chat_template, input, cause)) {
    const Json* role = input.messages.as_array()[*at].find("role");
    return ApiError::field("messages",
                           {.what = concat("messages[", places[*at], "] (role ", shown(*role), ")"),
                            .expected = "a message that the chat template of this model accepts",
                            .found = says(cause)});
  }
  if (asked || !with_user.ok()) return answer;
  return ApiError::field("messages",
                         {.what = "messages",
                          .expected = "a conversation that the chat template of this model accepts",
                          .found = says(error),
                          .advice = "add a message of the role user"});
}

/// Why the last message cannot be continued; nothing: it can.
std::optional<ApiError> no_continuation(const Json& last, size_t place) {
  const Json* calls = last.find("tool_calls");
  const bool called = calls != nullptr && calls->is_array() && !calls->as_array().empty();
  std::string text;
  for (const Json& part : parts_of(last)) text += text_of(part, "text");
  const bool empty = text.find_first_not_of(" \t\r\n\f\v") == std::string::npos;
  if (text_of(last, "role") == "assistant" && !called && !empty) return std::nullopt;
  return ApiError::field("messages",
                         {.what = concat("messages[", place, "], the message to continue"),
                          .expected = "the role assistant, some text, and no tool calls",
                          .found = called  ? "tool calls"
                                   : empty ? "no text"
                                           : concat("the role ", shown(*last.find("role")))});
}

/// Ends the prompt where the text of the last message does. Templates drop white space around that
/// text; what stands at its end is put back, since the answer continues after it.
bool cut_behind(std::string_view text, RenderedPrompt& prompt) {
  std::vector<TextPiece>& pieces = prompt.pieces;
  while (!pieces.empty() && pieces.back().origin != Origin::from_user) pieces.pop_back();
  if (pieces.empty()) return false;
  const size_t at = text.rfind(pieces.back().text);
  if (at == std::string_view::npos) return false;
  pieces.back().text += text.substr(at + pieces.back().text.size());
  return true;
}

}  // namespace

ChatMessages join_system_messages(Json messages) {
  Json::Array& list = messages.as_array();
  ChatMessages joined{.list = Json(Json::Array{}), .places = {}};
  Json::Array texts;
  std::optional<size_t> first;
  size_t systems = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!is_system(list[i])) {
      joined.places.push_back(i);
      continue;
    }
    ++systems;
    if (!first) first = i;
    Json::Array parts = parts_of(list[i]);
    if (!parts.empty() && !texts.empty() && parts.front().find("text") != nullptr)
      parts.front().set("text", Json(concat(kBetween, text_of(parts.front(), "text"))));
    std::ranges::move(parts, std::back_inserter(texts));
  }
  const bool as_it_is =
      systems == 0 || (systems == 1 && first == 0U && text_of(list.front(), "role") == "system");
  if (as_it_is) {
    if (systems == 1) joined.places.insert(joined.places.begin(), 0);
    joined.list = std::move(messages);
    return joined;
  }
  for (const size_t place : joined.places) joined.list.push_back(std::move(list[place]));
  joined.places.insert(joined.places.begin(), *first);
  Json::Array& out = joined.list.as_array();
  out.insert(out.begin(),
             json_object({{"role", Json("system")}, {"content", Json(std::move(texts))}}));
  return joined;
}

std::variant<RenderedPrompt, ApiError> render_chat(const ChatTemplate& chat_template,
                                                   const TemplateInput& input,
                                                   const std::vector<size_t>& places,
                                                   AnswerStart start) {
  const Json& last = input.messages.as_array().back();
  if (start == AnswerStart::continued)
    if (auto error = no_continuation(last, places.back())) return *std::move(error);
  auto rendered = chat_template.render(input);
  if (!rendered.ok()) return template_refusal(chat_template, input, places, rendered.error());
  RenderedPrompt prompt = std::move(rendered).value();
  if (start == AnswerStart::anew) return prompt;
  std::string text;
  for (const Json& part : parts_of(last)) text += text_of(part, "text");
  if (cut_behind(text, prompt)) return prompt;
  return ApiError::field("messages",
                         {.what = concat("messages[", places.back(), "], the message to continue"),
                          .expected = "a text that the chat template of this model shows whole",
                          .found = "one that it changes"});
}

}  // namespace nibble
