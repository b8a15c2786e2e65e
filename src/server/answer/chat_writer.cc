// OpenAI's chat completions: messages, and deltas of them.
#include "server/answer/choices_writer.h"
#include "server/answer/prompt_logprobs.h"

namespace nibble {

namespace {

Json call_json(const ToolCall& call) {
  return json_object({{"id", Json(call.id)},
                      {"type", Json("function")},
                      {"function", json_object({{"name", Json(call.name)},
                                                {"arguments", Json(call.arguments)}})}});
}

Json call_delta(const OutputEvent& event, std::string_view call_id) {
  Json call = json_object({{"index", Json(event.tool)}});
  if (event.kind == OutputEvent::Kind::tool_begin) {
    call.set("id", Json(call_id));
    call.set("type", Json("function"));
    call.set("function", json_object({{"name", Json(event.text)}, {"arguments", Json("")}}));
  } else {
    call.set("function", json_object({{"arguments", Json(event.text)}}));
  }
  return json_object({{"tool_calls", Json(Json::Array{std::move(call)})}});
}

/// Under the name, or both names, that the operator or the request chose.
void set_reasoning(Json& message, ReasoningField field, const std::string& text) {
  if (field != ReasoningField::reasoning) message.set("reasoning_content", Json(text));
  if (field != ReasoningField::reasoning_content) message.set("reasoning", Json(text));
}

class ChatWriter final : public ChoicesWriter {
 public:
  using ChoicesWriter::ChoicesWriter;

  /// Each choice begins with its role.
  std::string begin() override {
    std::string events;
    for (size_t i = 0; i < request().prompts.size() * static_cast<size_t>(request().choices); ++i)
      events += chunk(
          i,
          json_object({{"index", Json(i)},
                       {"delta", json_object({{"role", Json("assistant")}, {"content", Json("")}})},
                       {"logprobs", Json()},
                       {"finish_reason", Json()}}));
    return events;
  }

 private:
  std::string_view object_name() const override {
    return streams() ? "chat.completion.chunk" : "chat.completion";
  }

  Json::Member piece(const OutputEvent* event, std::string_view call_id) const override {
    Json delta(Json::Object{});
    if (event == nullptr) return {"delta", std::move(delta)};
    if (event->kind == OutputEvent::Kind::content)
      delta.set("content", Json(event->text));
    else if (event->kind == OutputEvent::Kind::reasoning)
      set_reasoning(delta, head().reasoning_field, event->text);
    else
      delta = call_delta(*event, call_id);
    return {"delta", std::move(delta)};
  }

  Json::Member text(const ChoiceText& text) const override {
    const bool only_calls = text.content.empty() && !text.calls.empty();
    Json message = json_object(
        {{"role", Json("assistant")}, {"content", only_calls ? Json() : Json(text.content)}});
    if (!text.reasoning.empty()) set_reasoning(message, head().reasoning_field, text.reasoning);
    Json::Array calls;
    for (const ToolCall& call : text.calls) calls.push_back(call_json(call));
    if (!calls.empty()) message.set("tool_calls", Json(std::move(calls)));
    return {"message", std::move(message)};
  }

  Json logprobs_json(std::span<const PositionLogprobs> positions, size_t&) const override {
    return chat_logprobs(names(), positions);
  }

  /// The ids stand beside the choices, as in vLLM: all choices have the same prompt.
  void set_prompt_ids(size_t index, Json&, Json& answer) const override {
    if (index == 0) answer.set("prompt_token_ids", ids_json(prompt_ids(index)));
  }
  void set_prompt_facts(size_t index, Json& choice, Json& answer) const override {
    if (request().return_token_ids) set_prompt_ids(index, choice, answer);
    if (index == 0 && request().prompt_logprobs >= 0)
      answer.set("prompt_logprobs",
                 prompt_logprobs_json(*names().tokenizer, this->choice(index).prompt_logprobs));
  }
};

}  // namespace

std::unique_ptr<AnswerWriter> make_chat_writer(AnswerFrame frame) {
  return std::make_unique<ChatWriter>(std::move(frame));
}

}  // namespace nibble
