// Anthropic's Messages API: content blocks of thinking, text and tool_use.
#include "server/answer/answer_writer.h"

namespace nibble {

namespace {

struct Block {
  OutputEvent::Kind kind = OutputEvent::Kind::content;  // reasoning, content or tool_begin
  std::string text;                                     // or the JSON of a call's arguments
  std::string id, name;                                 // id and name of a call
};

std::string_view type_of(OutputEvent::Kind kind) {
  if (kind == OutputEvent::Kind::reasoning) return "thinking";
  return kind == OutputEvent::Kind::content ? "text" : "tool_use";
}

class MessagesWriter final : public AnswerWriter {
 public:
  explicit MessagesWriter(AnswerHead head) : head_(std::move(head)) {}

  std::string begin() override {
    Json message = answer(Json(), Json());
    return named_event("message_start",
                       json_object({{"type", Json("message_start")}, {"message", message}}));
  }

  std::string add(size_t, const OutputEvent& event) override {
    if (event.kind == OutputEvent::Kind::tool_end) return close();
    const bool call = event.kind >= OutputEvent::Kind::tool_begin;
    const auto kind = call ? OutputEvent::Kind::tool_begin : event.kind;
    std::string events;
    if (!open_ || blocks_.back().kind != kind || event.kind == OutputEvent::Kind::tool_begin) {
      events = close();
      events += open(kind, event);
    }
    if (event.kind == OutputEvent::Kind::tool_begin) return events;
    blocks_.back().text += event.text;
    return events + delta(event);
  }

  std::string end(size_t, const ChoiceEnd& end) override {
    const bool stop_string = end.finish_reason == "stop" && end.stop_reason.is_string();
    stop_reason_ = Json(stop_string                             ? "stop_sequence"
                        : end.finish_reason == "tool_calls"     ? "tool_use"
                        : end.finish_reason == "length"         ? "max_tokens"
                        : end.finish_reason == "content_filter" ? "refusal"
                                                                : "end_turn");
    if (stop_string) stop_sequence_ = end.stop_reason;
    return close();
  }

  std::string finish(const AnswerTimes&) override {
    std::string events = named_event(
        "message_delta", json_object({{"type", Json("message_delta")},
                                      {"delta", json_object({{"stop_reason", stop_reason_},
                                                             {"stop_sequence", stop_sequence_}})},
                                      {"usage", usage()}}));
    return events + named_event("message_stop", json_object({{"type", Json("message_stop")}}));
  }

  Json whole() const override {
    Json message = answer(stop_reason_, stop_sequence_);
    Json::Array content;
    for (const Block& block : blocks_) content.push_back(whole_block(block));
    message.set("content", Json(std::move(content)));
    return message;
  }

  std::string ping() const override {
    return named_event("ping", json_object({{"type", Json("ping")}}));
  }
  std::string error(const ApiError& error) const override {
    return named_event("error", anthropic_error(error));
  }

 private:
  /// input_tokens are those that were computed; the rest was read from the cache.
  Json usage() const {
    return json_object({{"input_tokens", Json(counts().prompt - counts().cached)},
                        {"cache_creation_input_tokens", Json(0)},
                        {"cache_read_input_tokens", Json(counts().cached)},
                        {"output_tokens", Json(counts().completion)}});
  }

  Json answer(const Json& stop_reason, const Json& stop_sequence) const {
    return json_object({{"id", Json(head_.id)},
                        {"type", Json("message")},
                        {"role", Json("assistant")},
                        {"model", Json(head_.model)},
                        {"content", Json(Json::Array{})},
                        {"stop_reason", stop_reason},
                        {"stop_sequence", stop_sequence},
                        {"usage", usage()}});
  }

  /// Thinking is signed where it ends, with the answer's id: clients send it back as it is.
  Json whole_block(const Block& block) const {
    if (block.kind == OutputEvent::Kind::reasoning)
      return json_object({{"type", Json("thinking")},
                          {"thinking", Json(block.text)},
                          {"signature", Json(head_.id)}});
    if (block.kind == OutputEvent::Kind::content)
      return json_object({{"type", Json("text")}, {"text", Json(block.text)}});
    const auto input = parse_json(block.text, "the arguments");  // cut short: no object
    return json_object({{"type", Json("tool_use")},
                        {"id", Json(block.id)},
                        {"name", Json(block.name)},
                        {"input", input.ok() ? input.value() : Json(Json::Object{})}});
  }

  Json index() const { return Json(static_cast<int64_t>(blocks_.size()) - 1); }

  std::string open(OutputEvent::Kind kind, const OutputEvent& event) {
    Block block{.kind = kind};
    Json start = json_object({{"type", Json(type_of(kind))}});
    if (kind == OutputEvent::Kind::tool_begin) {
      block.id = random_id("toolu_");
      block.name = event.text;
      start.set("id", Json(block.id));
      start.set("name", Json(block.name));
      start.set("input", Json(Json::Object{}));
    } else {
      start.set(type_of(kind), Json(""));
      if (kind == OutputEvent::Kind::reasoning) start.set("signature", Json(""));
    }
    blocks_.push_back(std::move(block));
    open_ = true;
    return named_event("content_block_start", json_object({{"type", Json("content_block_start")},
                                                           {"index", index()},
                                                           {"content_block", std::move(start)}}));
  }

  std::string delta(const OutputEvent& event) const {
    const bool thinking = event.kind == OutputEvent::Kind::reasoning;
    const bool text = event.kind == OutputEvent::Kind::content;
    return delta(thinking ? "thinking_delta"
                 : text   ? "text_delta"
                          : "input_json_delta",
                 thinking ? "thinking"
                 : text   ? "text"
                          : "partial_json",
                 event.text);
  }
  std::string delta(std::string_view type, std::string_view member, std::string_view text) const {
    return named_event(
        "content_block_delta",
        json_object(
            {{"type", Json("content_block_delta")},
             {"index", index()},
             {"delta", json_object({{"type", Json(type)}, {std::string(member), Json(text)}})}}));
  }

  std::string close() {
    if (!std::exchange(open_, false)) return {};
    std::string events;
    if (blocks_.back().kind == OutputEvent::Kind::reasoning)
      events = delta("signature_delta", "signature", head_.id);
    return events +
           named_event("content_block_stop",
                       json_object({{"type", Json("content_block_stop")}, {"index", index()}}));
  }

  AnswerHead head_;
  std::vector<Block> blocks_;
  bool open_ = false;  // the last of them
  Json stop_reason_, stop_sequence_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_messages_writer(AnswerFrame frame) {
  return std::make_unique<MessagesWriter>(std::move(frame.head));
}

HttpResponse error_response(Api api, const ApiError& error) {
  HttpResponse response = error.response();
  if (api == Api::messages) response.body = anthropic_error(error).dump();
  return response;
}

Json anthropic_error(const ApiError& error) {
  const char* type = error.status == 401   ? "authentication_error"
                     : error.status == 403 ? "permission_error"
                     : error.status == 404 ? "not_found_error"
                     : error.status == 413 ? "request_too_large"
                     : error.status == 429 ? "rate_limit_error"
                     : error.status == 503 ? "overloaded_error"
                     : error.status >= 500 ? "api_error"
                                           : "invalid_request_error";
  Json inner = json_object({{"type", Json(type)}, {"message", message_json(error.message)}});
  if (!error.details.is_null()) inner.set("details", error.details);
  return json_object({{"type", Json("error")}, {"error", std::move(inner)}});
}

}  // namespace nibble
