// The chunks of /v1/chat/completions and /v1/completions, read by the members that matter here.
#include "bench/answer_reader.h"

#include <algorithm>

namespace nibble {

namespace {

constexpr int64_t kTokensMax = int64_t{1} << 40;

Error odd_event(std::string_view why) {
  return make_error(ErrorCode::corrupt, {.what = "an event of the answer",
                                         .expected = "a chunk of an OpenAI-compatible stream",
                                         .found = why});
}

Result<int64_t> count_of(const Json& usage, std::string_view key) {
  const Json* value = usage.find(key);
  if (value == nullptr || value->is_null()) return int64_t{0};
  if (!value->is_int() || value->as_int() < 0 || value->as_int() > kTokensMax)
    return odd_event(concat("usage.", key, " is no count"));
  return value->as_int();
}

Result<AnswerUsage> read_usage(const Json& json) {
  if (!json.is_object()) return odd_event("usage is no object");
  AnswerUsage usage;
  usage.prompt_tokens = TRY(count_of(json, "prompt_tokens"));
  usage.completion_tokens = TRY(count_of(json, "completion_tokens"));
  const Json* details = json.find("prompt_tokens_details");
  if (details != nullptr && details->is_object())
    usage.cached_tokens = TRY(count_of(*details, "cached_tokens"));
  return usage;
}

const std::string* text_member(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_string() ? &value->as_string() : nullptr;
}

/// True if a chat delta carries tokens: content, reasoning under either name, or calls of tools.
bool carries_tokens(const Json& delta) {
  for (const char* key : {"content", "reasoning_content", "reasoning"})
    if (const std::string* text = text_member(delta, key); text != nullptr && !text->empty())
      return true;
  const Json* calls = delta.find("tool_calls");
  return calls != nullptr && calls->is_array() && !calls->as_array().empty();
}

std::string one_line(std::string text) {
  constexpr size_t kShown = 200;
  if (text.size() > kShown) text.resize(kShown);
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }, ' ');
  return text;
}

}  // namespace

std::string error_message(std::string_view body) {
  const auto json = parse_json(body, "an error");
  const Json* error = json.ok() ? json.value().find("error") : nullptr;
  if (error != nullptr && error->is_string()) return one_line(error->as_string());
  const Json& holder = error != nullptr ? *error : (json.ok() ? json.value() : Json());
  if (const std::string* message = text_member(holder, "message")) return one_line(*message);
  return one_line(std::string(body));
}

Result<void> AnswerReader::feed(std::string_view bytes, double now_seconds) {
  return events_.feed(bytes, [&](std::string_view data) { return take(data, now_seconds); });
}

Result<void> AnswerReader::take(std::string_view data, double now_seconds) {
  if (done_) return odd_event("an event after [DONE]");
  if (data == "[DONE]") {
    done_ = true;
    return {};
  }
  const Json chunk = TRY(parse_json(data, "an event of the answer"));
  if (!chunk.is_object()) return odd_event(concat("a JSON ", chunk.type_name()));
  if (chunk.find("error") != nullptr)
    return Error{ErrorCode::io, concat("the stream says: ", error_message(data))};
  if (const Json* usage = chunk.find("usage"); usage != nullptr && !usage->is_null())
    usage_ = TRY(read_usage(*usage));
  const Json* choices = chunk.find("choices");
  if (choices == nullptr || !choices->is_array()) return odd_event("no list of choices");
  for (const Json& choice : choices->as_array()) TRY(take_choice(choice, now_seconds));
  return {};
}

Result<void> AnswerReader::take_choice(const Json& choice, double now_seconds) {
  if (!choice.is_object()) return odd_event("a choice that is no object");
  const std::string* reason = text_member(choice, "finish_reason");
  if (reason != nullptr) finish_reason_ = *reason;
  bool tokens = false;
  if (api_ == LoadApi::chat) {
    const Json* delta = choice.find("delta");
    if (delta == nullptr || !delta->is_object()) return odd_event("a choice without a delta");
    tokens = carries_tokens(*delta);
    if (const std::string* text = text_member(*delta, "content")) text_ += *text;
  } else {
    const std::string* text = text_member(choice, "text");
    if (text == nullptr) return odd_event("a choice without a text");
    // A special token has an empty text; so has the last event, which only tells the reason.
    tokens = !text->empty() || reason == nullptr;
    text_ += *text;
  }
  // Tokens without a text of their own, such as a half character, come with the end.
  if (tokens || (reason != nullptr && token_times_.empty())) token_times_.push_back(now_seconds);
  return {};
}

}  // namespace nibble
