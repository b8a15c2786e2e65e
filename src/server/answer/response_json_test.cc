// Chunks made of a prepared frame against those made as trees.
#include "server/answer/response_json.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

using Kind = OutputEvent::Kind;

AnswerHead head_of(Api api, ReasoningField field) {
  return {.id = "chatcmpl-1",
          .api = api,
          .delivery = Delivery::stream,
          .model = "a \"\" model\\of\n]}",
          .created = 1234567,
          .reasoning_field = field};
}

void expect_same_as_the_tree(const AnswerHead& head, int32_t index, Kind kind) {
  const TextChunks chunks(head, index, kind);
  for (const std::string& text :
       {std::string(), std::string("x"), std::string("\"\" \\ \n\r\t\b\f \x01\x1f é 漢 😀"),
        std::string("]}\"\"{"), std::string(5000, '"')}) {
    const OutputEvent event{.kind = kind, .text = text};
    std::string made = "before ";
    chunks.append(made, text);
    const Json tree = head.object({chunk_choice(head, index, &event, {}, nullptr, Json())});
    EXPECT_EQ(made, concat("before data: ", tree.dump(), "\n\n"));
  }
}

TEST(TextChunks, AreTheChunksOfTheTreeForEveryApiAndName) {
  for (const auto field :
       {ReasoningField::both, ReasoningField::reasoning, ReasoningField::reasoning_content})
    for (const int32_t index : {0, 7, 127}) {
      expect_same_as_the_tree(head_of(Api::chat, field), index, Kind::content);
      expect_same_as_the_tree(head_of(Api::chat, field), index, Kind::reasoning);
      expect_same_as_the_tree(head_of(Api::completions, field), index, Kind::content);
    }
}

TEST(TextChunks, TheTextIsReadBackAsItWas) {
  const AnswerHead head = head_of(Api::chat, ReasoningField::both);
  const std::string text = "a \"quoted\" \\ line\nand \x02 another";
  std::string event;
  TextChunks(head, 0, Kind::reasoning).append(event, text);
  const Json chunk = parse_json(std::string_view(event).substr(6), "a chunk").value();
  const Json& delta = *chunk.find("choices")->as_array().at(0).find("delta");
  EXPECT_EQ(delta.find("reasoning")->as_string(), text);
  EXPECT_EQ(delta.find("reasoning_content")->as_string(), text);
}

}  // namespace
}  // namespace nibble
