// The parts that both translations to chat requests build: conversations, message by message.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/json.h"
#include "server/request/field_reader.h"

namespace nibble {

/// The text of a member, or empty.
inline std::string text_of(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

/// The text part, on a line of its own, that takes the place of an image in what a tool answered,
/// as the part `index` of it, where no images are served. Agents show screenshots and go on without
/// them; the model must know that it sees none.
Json left_out_image(size_t index);

/// An image as a part of a chat, with the cache_control of the block that it comes from.
Json image_part(Json url, const Json& block);

/// Messages as they gather. Templates take one system message, the first: what is said under that
/// role is joined there. The pieces of one assistant turn (thinking, text, calls) become one
/// message.
class Conversation {
 public:
  /// `content` is a string or a list of parts.
  void system(Json content);
  void user(Json content);
  void reasoning(std::string_view text);
  void assistant_text(std::string_view text);
  /// `arguments`: JSON text, or an object.
  void call(std::string id, std::string name, Json arguments);
  void tool_result(std::string id, Json content);
  /// A cache_control mark on the last message, if there is one and `block` has a mark.
  void mark(const Json& block);
  /// The turn of the assistant ends, though the next message is one of it too.
  void end_turn() { in_turn_ = false; }

  bool begun() const { return !messages_.empty(); }

  Json take();

 private:
  Json& turn();
  void add(std::string_view role, Json content);

  Json::Array system_;  // text parts
  Json::Array messages_;
  bool in_turn_ = false;
};

/// Copies members that are there to their names in a chat request.
void copy_members(const Json& from,
                  std::initializer_list<std::pair<std::string_view, std::string_view>> names,
                  Json& to);
/// The same with fields of the request itself.
void copy_fields(const FieldReader& from,
                 std::initializer_list<std::pair<std::string_view, std::string_view>> names,
                 Json& to);

}  // namespace nibble
