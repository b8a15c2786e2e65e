// Unknown fields, and the names of thinking in and out.
#include "server/request/known_fields.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::kChat;
using testing::post;

constexpr Api kApis[] = {Api::chat, Api::completions, Api::messages, Api::responses};

std::string refusal(Api api, const std::string& body) {
  const auto error = unknown_field(api, parse_json(body, "body").value());
  return error ? error->message : "";
}

TEST(KnownFields, NamesTheNearest) {
  EXPECT_EQ(refusal(Api::chat, R"({"messages":[],"temprature":1})"),
            "an unknown field: expected one that this server knows, found \"temprature\"; the "
            "nearest is temperature");
  EXPECT_NE(refusal(Api::messages, R"({"stop_sequence":[]})").find("stop_sequences"),
            std::string::npos);
  EXPECT_NE(refusal(Api::responses, R"({"max_output_token":1})").find("max_output_tokens"),
            std::string::npos);
  EXPECT_NE(refusal(Api::completions, R"({"promt":1})").find("prompt"), std::string::npos);
  const std::string longest(5000, 'x');
  EXPECT_LT(refusal(Api::chat, concat(R"({")", longest, R"(":1})")).size(), 300U);
  EXPECT_EQ(refusal(Api::chat, R"({"messages":[],"user":"u","store":false})"), "");
}

TEST(KnownFields, AreSortedAndOnce) {
  for (const Api api : kApis) {
    const auto names = known_fields(api);
    EXPECT_GT(names.size(), 20U);
    EXPECT_TRUE(std::ranges::is_sorted(names));
    EXPECT_EQ(std::ranges::adjacent_find(names), names.end()) << *std::ranges::adjacent_find(names);
  }
}

class KnownFieldsTest : public testing::ServerTest {
 protected:
  void start_with(AnswerPolicy policy) {
    policy_ = policy;
    start("why</think>\n\nyes");
  }
  ServedModel model() const override {
    ServedModel made = testing::ServerTest::model();
    made.policy = policy_;
    return made;
  }
  AnswerPolicy policy_;
};

TEST_F(KnownFieldsTest, AreRefusedWhereTheOperatorWants) {
  start_with({.unknown_fields = UnknownFields::refused});
  const auto [status, body] =
      ask(post(kChat, R"({"messages":[{"role":"user","content":"hi"}],"stopp":"x"})"));
  EXPECT_EQ(status, 400);
  EXPECT_NE(body.find(R"("param":"stopp")"), std::string::npos) << body;
  EXPECT_EQ(ask(post("/v1/messages", R"({"max_token":5,"messages":[]})")).first, 400);
  chat(R"(,"user":"u","max_tokens":50,"return_progress":true,"reasoning_field":"both")");
}

TEST_F(KnownFieldsTest, AreIgnoredElse) {
  start_with({});
  chat(R"(,"stopp":"x")");
}

/// The message's members that are thinking, of a whole answer and of a stream.
TEST_F(KnownFieldsTest, ThinkingHasTheNamesTheOperatorOrTheRequestWants) {
  start_with({.reasoning_field = ReasoningField::reasoning});
  const auto named = [&](const std::string& fields) {
    const Json answer = chat(fields);
    const Json& message = at(choice(answer), "message");
    std::string names;
    for (const char* name : {"reasoning", "reasoning_content"})
      if (const Json* text = message.find(name)) {
        EXPECT_EQ(text->as_string(), "why");
        names += concat(name, " ");
      }
    const auto streamed =
        events(post(kChat, concat(R"({"stream":true,"messages":[{"role":"user","content":"hi"}])",
                                  fields, "}")));
    std::string in_stream;
    for (const char* name : {"reasoning", "reasoning_content"})
      for (const std::string& event : streamed)
        if (event.find(concat("\"", name, "\":\"w")) != std::string::npos)
          in_stream += concat(name, " ");
    EXPECT_EQ(names, in_stream) << fields;
    return names;
  };
  EXPECT_EQ(named(""), "reasoning ");
  EXPECT_EQ(named(R"(,"reasoning_field":"reasoning_content")"), "reasoning_content ");
  EXPECT_EQ(named(R"(,"reasoning_field":"both")"), "reasoning reasoning_content ");
  EXPECT_EQ(named(R"(,"include_reasoning":false)"), "");
  EXPECT_EQ(ask(post(kChat, R"({"messages":[{"role":"user","content":"hi"}],)"
                            R"("reasoning_field":"think"})"))
                .first,
            400);
}

}  // namespace
}  // namespace nibble
