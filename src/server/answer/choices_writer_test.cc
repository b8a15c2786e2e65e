// Chunks made of a prepared frame against those made as trees.
#include "server/answer/choices_writer.h"

#include <gtest/gtest.h>

#include <list>

namespace nibble {
namespace {

using Kind = OutputEvent::Kind;

/// A stream of an API. Where log-probabilities are wanted every chunk is a tree; without them the
/// engine gives none, so that its bytes are to be the same.
class Stream {
 public:
  Stream(Api api, ReasoningField field, int32_t choices) : request_{.api = api} {
    request_.choices = choices;
    request_.prompts = {{1}};
    head_ = {.id = "chatcmpl-1",
             .delivery = Delivery::stream,
             .model = "a \"\" model\\of\n]}",
             .created = 1234567,
             .reasoning_field = field};
  }
  std::unique_ptr<AnswerWriter> prepared() { return writer(-1); }
  std::unique_ptr<AnswerWriter> by_trees() { return writer(0); }

 private:
  std::unique_ptr<AnswerWriter> writer(int32_t top_logprobs) {
    GenerationRequest& request = requests_.emplace_back(request_);
    request.sampling.top_logprobs = top_logprobs;
    return make_answer_writer({.head = head_, .request = request, .names = {}});
  }
  AnswerHead head_;
  GenerationRequest request_;
  std::list<GenerationRequest> requests_;
};

void expect_same_as_the_tree(Api api, ReasoningField field, size_t index, Kind kind) {
  Stream stream(api, field, static_cast<int32_t>(index) + 1);
  const auto prepared = stream.prepared();
  const auto by_trees = stream.by_trees();
  for (const std::string& text :
       {std::string(), std::string("x"), std::string("\"\" \\ \n\r\t\b\f \x01\x1f é 漢 😀"),
        std::string("]}\"\"{"), std::string(5000, '"')}) {
    const OutputEvent event{.kind = kind, .text = text};
    const std::string tree = by_trees->add(index, event);
    EXPECT_EQ(prepared->add(index, event), tree);
    EXPECT_TRUE(tree.starts_with("data: {") && tree.ends_with("}\n\n")) << tree;
  }
}

TEST(ChoicesWriter, PreparedChunksAreThoseOfTheTreeForEveryApiAndName) {
  for (const auto field :
       {ReasoningField::both, ReasoningField::reasoning, ReasoningField::reasoning_content})
    for (const size_t index : {0, 7, 127}) {
      expect_same_as_the_tree(Api::chat, field, index, Kind::content);
      expect_same_as_the_tree(Api::chat, field, index, Kind::reasoning);
      expect_same_as_the_tree(Api::completions, field, index, Kind::content);
    }
}

TEST(ChoicesWriter, TheTextIsReadBackAsItWas) {
  const std::string text = "a \"quoted\" \\ line\nand \x02 another";
  Stream stream(Api::chat, ReasoningField::both, 1);
  const auto writer = stream.prepared();
  const std::string event = writer->add(0, {.kind = Kind::reasoning, .text = text});
  const Json chunk = parse_json(std::string_view(event).substr(6), "a chunk").value();
  const Json& delta = *chunk.find("choices")->as_array().at(0).find("delta");
  EXPECT_EQ(delta.find("reasoning")->as_string(), text);
  EXPECT_EQ(delta.find("reasoning_content")->as_string(), text);
}

TEST(TokenCounts, TellOfDraftsWhereThereWereAny) {
  TokenCounts counts{.prompt = 5, .completion = 7, .reasoning = 2};
  EXPECT_EQ(counts.completion_details().dump(), R"({"reasoning_tokens":2})");
  counts.drafted = 9;
  counts.accepted = 4;
  EXPECT_EQ(counts.completion_details().dump(),
            R"({"reasoning_tokens":2,"draft_tokens":9,"accepted_draft_tokens":4})");
}

}  // namespace
}  // namespace nibble
