// The parts of answers: how they begin, what they count, how choices end, log-probabilities, chunks
// of text. The writers of the APIs make answers of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/messages.h"
#include "server/decode/output_parser.h"
#include "server/request/generation_request.h"

namespace nibble {

/// The members that every object of one answer repeats.
struct AnswerHead {
  std::string id;  // "chatcmpl-..."
  Delivery delivery = Delivery::whole;
  std::string model;
  std::string fingerprint;  // names everything that decides answers: the same while answers can be
  int64_t created = 0;
  ReasoningField reasoning_field = ReasoningField::both;
};

struct TokenCounts {
  int64_t prompt = 0;
  int64_t cached = 0;             // prompt tokens from the cache
  int64_t completion = 0;         // tokens of choices that have ended
  int64_t completion_so_far = 0;  // tokens of all choices
  int64_t reasoning = 0;
  int64_t drafted = 0;   // tokens that speculation proposed, and
  int64_t accepted = 0;  // those that the model agreed with; of choices that have ended
  Json usage() const;
  /// usage()'s details of generated tokens: those of drafts where there were any.
  Json completion_details() const;
};

/// The end of a choice, in the words of the API.
struct ChoiceEnd {
  std::string finish_reason;  // stop, length, tool_calls, repetition, content_filter, abort
  Json stop_reason;           // the stop string, an extra stop id, a word, or null
};

/// One tool call of a whole answer.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;
};

/// A whole answer of one choice as it gathers.
struct ChoiceText {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;
  void add(const OutputEvent& event);
};

/// How log-probabilities call tokens: by their text, where invalid UTF-8 is U+FFFD, or by their
/// ids.
struct TokenNames {
  const Tokenizer* tokenizer = nullptr;
  TokenName name = TokenName::text;
  std::string text_of(int32_t token) const;
  std::string operator()(int32_t token) const;
};

/// {"content":[{token, logprob, bytes, top_logprobs}]}.
Json chat_logprobs(const TokenNames& names, std::span<const PositionLogprobs> positions);
/// {tokens, token_logprobs, top_logprobs, text_offset}; the offset, in characters of the text, goes
/// on from `text_offset`. The chosen token is among the top ones even where it is no best one.
Json completion_logprobs(const TokenNames& names, std::span<const PositionLogprobs> positions,
                         size_t& text_offset);

/// Streamed chunks of a choice that bring text and no log-probabilities: what all of them repeat is
/// made once.
class TextChunks {
 public:
  /// `object` ends with an empty list of choices; the empty strings of `choice` are where the text
  /// belongs.
  TextChunks(const Json& object, const Json& choice);
  /// Appends the event "data: {...}" of the object with the choice that brings `text`.
  void append(std::string& out, std::string_view text) const;

 private:
  std::vector<std::string> parts_;  // the text stands between each two
};

/// "PREFIX" and 24 random hexadecimal digits.
std::string random_id(std::string_view prefix);

}  // namespace nibble
