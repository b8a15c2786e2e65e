// OpenAI's completions: plain text, after that of the prompt where it is echoed.
#include "server/answer/choices_writer.h"
#include "server/answer/prompt_logprobs.h"

namespace nibble {

namespace {

class CompletionWriter final : public ChoicesWriter {
 public:
  using ChoicesWriter::ChoicesWriter;

  /// The prompt is the first piece of a stream.
  std::string prompt(size_t index, std::vector<PositionLogprobs> positions) override {
    ChoicesWriter::prompt(index, std::move(positions));
    if (request().echo == Echo::none) return {};
    const OutputEvent echo{.kind = OutputEvent::Kind::content,
                           .text = names().tokenizer->decode(prompt_ids(index), SkipSpecial::no)};
    Choice& choice = this->choice(index);
    if (!streams()) {
      choice.text.add(echo);
      return {};
    }
    Json logprobs;
    if (request().sampling.wants_logprobs()) logprobs = prompt_part(index, choice.text_offset);
    return chunk_with_ids(index, chunk_choice(index, &echo, nullptr, std::move(logprobs)));
  }

 private:
  std::string_view object_name() const override { return "text_completion"; }
  Json::Member piece(const OutputEvent* event, std::string_view) const override {
    return {"text", Json(event != nullptr ? event->text : std::string())};
  }
  Json::Member text(const ChoiceText& text) const override { return {"text", Json(text.content)}; }

  Json logprobs_json(std::span<const PositionLogprobs> positions,
                     size_t& text_offset) const override {
    return completion_logprobs(names(), positions, text_offset);
  }

  /// The log-probabilities of an echoed prompt.
  Json prompt_part(size_t index, size_t& text_offset) const {
    return echo_logprobs(names(), prompt_ids(index).front(), choice(index).prompt_logprobs,
                         text_offset);
  }

  Json whole_logprobs(size_t index) const override {
    if (request().echo == Echo::none || !request().sampling.wants_logprobs())
      return ChoicesWriter::whole_logprobs(index);
    size_t text_offset = 0;
    Json logprobs = prompt_part(index, text_offset);
    // A text that a filter rejected has none; the prompt has passed.
    const TokenFacts& tokens = choice(index).tokens;
    if (tokens.passed) append_logprobs(logprobs, logprobs_json(tokens.logprobs, text_offset));
    return logprobs;
  }

  /// The ids stand in the choice, as in vLLM: a request may have several prompts.
  void set_prompt_ids(size_t index, Json& choice, Json&) const override {
    choice.set("prompt_token_ids", ids_json(prompt_ids(index)));
  }
  void set_prompt_facts(size_t index, Json& choice, Json& answer) const override {
    if (request().prompt_logprobs >= 0)
      choice.set("prompt_logprobs",
                 prompt_logprobs_json(*names().tokenizer, this->choice(index).prompt_logprobs));
    if (request().return_token_ids) set_prompt_ids(index, choice, answer);
  }
};

}  // namespace

std::unique_ptr<AnswerWriter> make_completion_writer(AnswerFrame frame) {
  return std::make_unique<CompletionWriter>(std::move(frame));
}

}  // namespace nibble
