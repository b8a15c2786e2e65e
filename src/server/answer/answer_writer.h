// AnswerWriter: an answer in the words of one API. The same calls make a stream and a whole answer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/messages.h"
#include "server/answer/response_json.h"
#include "server/http/api_error.h"

namespace nibble {

/// The facts about an answer that its writer has from the start. The request outlives the writer.
struct AnswerFrame {
  AnswerHead head;
  const GenerationRequest& request;
  TokenNames names;
};

/// The tokens of a choice since the last time. Where they may not be told (`passed` is false), a
/// filter has not let the text pass, and the lists are empty.
struct TokenFacts {
  bool passed = true;
  std::vector<PositionLogprobs> logprobs;
  std::vector<int32_t> ids;
};

/// Times in milliseconds; zero before the first token.
struct AnswerTimes {
  int64_t tokens = 0;        // tokens of all choices
  double prompt_ms = 0.0;    // until the first token
  double generation_ms = 0;  // from the first token to the last
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // Functions that return text return the events of a stream; a whole answer drops them. In this
  // order: begin (streams only); of each choice any number of progress, then one prompt, any number
  // of add, and one end; finish.

  /// The counts so far, which hold for what is written next.
  void count(const TokenCounts& counts) { counts_ = counts; }
  virtual std::string begin() = 0;
  /// Tells how far the prompt of a choice is, for requests with return_progress.
  virtual std::string progress(size_t /*choice*/, const PromptProgress& /*progress*/) { return {}; }
  /// The prompt's log-probabilities, all of them unless the choice ended early; none if the request
  /// wants none.
  virtual std::string prompt(size_t /*choice*/, std::vector<PositionLogprobs> /*positions*/) {
    return {};
  }
  /// Facts about tokens, before the text that they make.
  virtual void take_tokens(size_t /*choice*/, TokenFacts /*facts*/) {}
  virtual std::string add(size_t choice, const OutputEvent& event) = 0;
  virtual std::string end(size_t choice, const ChoiceEnd& end) = 0;
  virtual std::string finish(const AnswerTimes& times) = 0;
  /// The whole answer, after finish; earlier, the answer as far as it is.
  virtual Json whole() const = 0;

  /// Events of a stream that has begun: a sign of life, and an error.
  virtual std::string ping() const { return ": ping\n\n"; }
  virtual std::string error(const ApiError& error) const = 0;

  /// The tokens whose log-probabilities are told: all, or those of the text.
  enum class LogprobsOf : uint8_t { all, text };
  virtual LogprobsOf logprobs_of() const { return LogprobsOf::text; }

 protected:
  const TokenCounts& counts() const { return counts_; }

 private:
  TokenCounts counts_;
};

/// The writer of the request's API.
std::unique_ptr<AnswerWriter> make_answer_writer(AnswerFrame frame);
/// The beginning of the ids of an API's answers: "chatcmpl-".
std::string_view answer_id_prefix(Api api);

/// "data: JSON\n\n".
std::string data_event(const Json& data);
/// "event: NAME\ndata: JSON\n\n".
std::string named_event(std::string_view name, const Json& data);

/// An error before a stream has begun, in the API's shape.
HttpResponse error_response(Api api, const ApiError& error);

/// An error in Anthropic's shape: {"type":"error","error":{"type","message"}}.
Json anthropic_error(const ApiError& error);

// The writers of the APIs; make_answer_writer() chooses.
std::unique_ptr<AnswerWriter> make_chat_writer(AnswerFrame frame);
std::unique_ptr<AnswerWriter> make_completion_writer(AnswerFrame frame);
std::unique_ptr<AnswerWriter> make_messages_writer(AnswerFrame frame);
std::unique_ptr<AnswerWriter> make_responses_writer(AnswerFrame frame);

}  // namespace nibble
