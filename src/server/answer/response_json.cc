// Objects in the field order of OpenAI's reference.
#include "server/answer/response_json.h"

#include <algorithm>
#include <random>

namespace nibble {

namespace {

constexpr double kLogprobMin = -9999.0;  // JSON has no minus infinity

Json token_entry(const TokenNames& names, const TokenLogprob& entry) {
  Json::Array bytes;
  for (const char c : names.tokenizer->id_to_token_bytes(entry.token).value_or(std::string_view{}))
    bytes.push_back(Json(static_cast<int>(static_cast<unsigned char>(c))));
  return json_object({{"token", Json(names(entry.token))},
                      {"logprob", Json(std::max(entry.logprob, kLogprobMin))},
                      {"bytes", Json(std::move(bytes))}});
}

/// Code points, which Python and OpenAI's reference count.
size_t characters_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

std::optional<ReasoningField> reasoning_field_of(std::string_view name) {
  if (name == "both") return ReasoningField::both;
  if (name == "reasoning") return ReasoningField::reasoning;
  if (name == "reasoning_content") return ReasoningField::reasoning_content;
  return std::nullopt;
}

Json TokenCounts::usage() const {
  return json_object({{"prompt_tokens", Json(prompt)},
                      {"completion_tokens", Json(completion)},
                      {"total_tokens", Json(prompt + completion)},
                      {"prompt_tokens_details", json_object({{"cached_tokens", Json(cached)}})},
                      {"completion_tokens_details", completion_details()}});
}

Json TokenCounts::completion_details() const {
  Json details = json_object({{"reasoning_tokens", Json(reasoning)}});
  if (drafted == 0) return details;
  details.set("draft_tokens", drafted);
  details.set("accepted_draft_tokens", accepted);
  return details;
}

void ChoiceText::add(const OutputEvent& event) {
  switch (event.kind) {
    case OutputEvent::Kind::reasoning:
      reasoning += event.text;
      break;
    case OutputEvent::Kind::content:
      content += event.text;
      break;
    case OutputEvent::Kind::tool_begin:
      calls.push_back({random_id("call_"), event.text, ""});
      break;
    case OutputEvent::Kind::tool_arguments:
      calls.back().arguments += event.text;
      break;
    case OutputEvent::Kind::tool_end:
      break;
  }
}

std::string TokenNames::text_of(int32_t token) const {
  return tokenizer->decode({&token, 1}, SkipSpecial::no);
}

std::string TokenNames::operator()(int32_t token) const {
  return name == TokenName::id ? concat("token_id:", token) : text_of(token);
}

Json chat_logprobs(const TokenNames& names, std::span<const PositionLogprobs> positions) {
  Json::Array content;
  for (const PositionLogprobs& position : positions) {
    Json entry = token_entry(names, position.chosen);
    Json::Array top;
    for (const TokenLogprob& other : position.top) top.push_back(token_entry(names, other));
    entry.set("top_logprobs", Json(std::move(top)));
    content.push_back(std::move(entry));
  }
  return json_object({{"content", Json(std::move(content))}});
}

Json completion_logprobs(const TokenNames& names, std::span<const PositionLogprobs> positions,
                         size_t& text_offset) {
  Json::Array tokens;
  Json::Array logprobs;
  Json::Array tops;
  Json::Array offsets;
  for (const PositionLogprobs& position : positions) {
    const std::string name = names(position.chosen.token);
    tokens.push_back(Json(name));
    logprobs.push_back(Json(std::max(position.chosen.logprob, kLogprobMin)));
    offsets.push_back(Json(text_offset));
    text_offset += characters_of(names.text_of(position.chosen.token));
    Json top(Json::Object{});
    for (const TokenLogprob& other : position.top)
      top.set(names(other.token), Json(std::max(other.logprob, kLogprobMin)));
    top.set(name, logprobs.back());
    tops.push_back(std::move(top));
  }
  return json_object({{"tokens", Json(std::move(tokens))},
                      {"token_logprobs", Json(std::move(logprobs))},
                      {"top_logprobs", Json(std::move(tops))},
                      {"text_offset", Json(std::move(offsets))}});
}

TextChunks::TextChunks(const Json& object_without_choices, const Json& empty_choice) {
  constexpr std::string_view kHole = "\"\"", kEnd = "]}";
  const std::string choice = empty_choice.dump();
  for (size_t at = 0, hole = 0; hole != std::string::npos; at = hole + kHole.size()) {
    hole = choice.find(kHole, at);
    parts_.push_back(choice.substr(at, hole - at));
  }
  const std::string object = object_without_choices.dump();
  CHECK(parts_.size() > 1 && object.ends_with(kEnd), choice, object);
  parts_.front() = concat("data: ", object.substr(0, object.size() - kEnd.size()), parts_.front());
  parts_.back() += concat(kEnd, "\n\n");
}

void TextChunks::append(std::string& out, std::string_view text) const {
  for (size_t i = 0; i + 1 < parts_.size(); ++i) {
    out += parts_[i];
    append_json_string(out, text);
  }
  out += parts_.back();
}

std::string random_id(std::string_view prefix) {
  std::random_device entropy;
  std::string id(prefix);
  for (int word = 0; word < 3; ++word) {
    uint32_t bits = entropy();
    for (int digit = 0; digit < 8; ++digit, bits >>= 4)
      id.push_back("0123456789abcdef"[bits & 15U]);
  }
  return id;
}

}  // namespace nibble
