// ChoicesWriter: the words that OpenAI's chat completions and completions share: an answer is an
// object with a list of choices, a stream one such object for each step of a choice.
#pragma once

#include <optional>

#include "server/answer/answer_writer.h"

namespace nibble {

class ChoicesWriter : public AnswerWriter {
 public:
  explicit ChoicesWriter(AnswerFrame frame);

  std::string begin() override { return {}; }
  std::string progress(size_t choice, const PromptProgress& progress) override;
  std::string prompt(size_t choice, std::vector<PositionLogprobs> positions) override;
  void take_tokens(size_t choice, TokenFacts facts) override;
  std::string add(size_t choice, const OutputEvent& event) override;
  std::string end(size_t choice, const ChoiceEnd& end) override;
  std::string finish(const AnswerTimes& times) override;
  Json whole() const override;
  std::string error(const ApiError& error) const override { return data_event(error.json()); }
  LogprobsOf logprobs_of() const override { return LogprobsOf::all; }

 protected:
  struct Choice {
    ChoiceText text;                                // streams: ids of calls alone
    std::vector<PositionLogprobs> prompt_logprobs;  // whole answers
    TokenFacts tokens;                              // not told yet
    size_t text_offset = 0;                         // characters told
    bool prompt_ids_told = false;
    std::optional<TextChunks> content_chunks, reasoning_chunks;  // once needed
    std::optional<ChoiceEnd> end;
  };

  /// The value of "object".
  virtual std::string_view object_name() const = 0;
  /// The member of a chunk's choice that brings what is new; no event: nothing is. `call_id`: of an
  /// event that begins a call.
  virtual Json::Member piece(const OutputEvent* event, std::string_view call_id) const = 0;
  /// The member of a whole answer's choice that has its text.
  virtual Json::Member text(const ChoiceText& text) const = 0;
  /// The text offset goes on from its value.
  virtual Json logprobs_json(std::span<const PositionLogprobs> positions,
                             size_t& text_offset) const = 0;
  /// The "logprobs" of a whole answer's choice.
  virtual Json whole_logprobs(size_t index) const;
  /// Puts the ids of the prompt into the choice or into the answer around it.
  virtual void set_prompt_ids(size_t index, Json& choice, Json& answer) const = 0;
  /// The same with prompt_logprobs, each if the request wants it.
  virtual void set_prompt_facts(size_t index, Json& choice, Json& answer) const = 0;

  const GenerationRequest& request() const { return frame_.request; }
  const AnswerHead& head() const { return frame_.head; }
  const TokenNames& names() const { return frame_.names; }
  const Choice& choice(size_t index) const { return choices_[index]; }
  Choice& choice(size_t index) { return choices_[index]; }
  const std::vector<int32_t>& prompt_ids(size_t index) const;
  bool streams() const { return frame_.head.delivery == Delivery::stream; }

  /// {"id","object","created","model","system_fingerprint","choices"}.
  Json object(Json::Array choices) const;
  /// The choice of a chunk; `event` and `end` may be absent.
  Json chunk_choice(size_t index, const OutputEvent* event, const ChoiceEnd* end,
                    Json logprobs) const;
  /// A chunk with one choice, and the usage where each chunk has it.
  std::string chunk(size_t index, Json choice);
  /// The same with the ids of the tokens where they are wanted.
  std::string chunk_with_ids(size_t index, Json choice);
  /// Log-probabilities that were not told yet; null: none are wanted or may be told.
  Json fresh_logprobs(Choice& choice) const;

 private:
  Json whole_choice(size_t index) const;
  Json ids_or_null(const TokenFacts& tokens) const;

  AnswerFrame frame_;
  std::vector<Choice> choices_;
};

/// A list of token ids.
Json ids_json(std::span<const int32_t> ids);

}  // namespace nibble
