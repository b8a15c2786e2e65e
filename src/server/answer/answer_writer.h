// AnswerWriter: the words of an API whose answers are lists of blocks (Anthropic's messages,
// OpenAI's responses): one choice, blocks that open, grow and close, named events. The same calls
// make a stream and a whole answer.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "server/answer/response_json.h"
#include "server/http/api_error.h"

namespace nibble {

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  /// Each returns the events of a stream; a whole answer drops them. In this order: begin, any
  /// number of add, finish.
  virtual std::string begin(const TokenCounts& counts) = 0;
  virtual std::string add(const OutputEvent& event) = 0;
  /// Log-probabilities of tokens of the text, entries as chat_logprobs() makes them, before the
  /// events that give the text. An API that has none drops them.
  virtual void take_logprobs(const Json::Array& /*entries*/) {}
  virtual std::string finish(const ChoiceEnd& end, const TokenCounts& counts) = 0;
  /// The whole answer, after finish.
  virtual Json whole() const = 0;
  /// Events of a stream that has begun: a sign of life, and an error.
  virtual std::string ping() const = 0;
  virtual std::string error(const ApiError& error) const = 0;
};

/// For Api::messages and Api::responses; nothing for the others. `echoed`: members of the request
/// that the answer repeats.
std::unique_ptr<AnswerWriter> make_answer_writer(const AnswerHead& head, const Json& echoed);

/// "event: NAME\ndata: JSON\n\n".
std::string named_event(std::string_view name, const Json& data);

/// An error before a stream has begun, in the API's shape.
HttpResponse error_response(Api api, const ApiError& error);

/// An error in Anthropic's shape: {"type":"error","error":{"type","message"}}.
Json anthropic_error(const ApiError& error);

// The two writers; make_answer_writer() chooses.
std::unique_ptr<AnswerWriter> make_messages_writer(const AnswerHead& head);
std::unique_ptr<AnswerWriter> make_responses_writer(const AnswerHead& head, const Json& echoed);

}  // namespace nibble
