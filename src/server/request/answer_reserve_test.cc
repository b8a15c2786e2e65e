// Room for the answer when thinking is on: token by token, under drafts, and end to end.
#include <gtest/gtest.h>

#include <bit>

#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::kChat;
using testing::post;

/// The request parsed as a chat with `fields`.
GenerationRequest parsed(const ServedModel& model, const std::string& fields) {
  const std::string body = concat(R"({"messages":[{"role":"user","content":"hi"}])", fields, "}");
  ParsedRequest request = parse_generation_request(Api::chat, body, model);
  if (const auto* error = std::get_if<ApiError>(&request)) ADD_FAILURE() << error->message;
  return std::get<GenerationRequest>(std::move(request));
}

/// The one token that may follow, or -1: several may.
int32_t forced(TokenConstraint& constraint, const std::vector<int32_t>& drafted = {}) {
  std::vector<uint32_t> bits((testing::kVocabRows + 31) / 32, ~0U);
  if (constraint.mask(drafted, bits) == TokenConstraint::MaskState::open) return -1;
  int32_t found = -1;
  for (int32_t id = 0; id < testing::kVocabRows; ++id) {
    if ((bits[static_cast<size_t>(id) / 32] >> (id % 32) & 1U) == 0) continue;
    if (found >= 0) return -1;
    found = id;
  }
  return found;
}

/// Thinks for ever: how many tokens are free, and what is then forced.
std::pair<int, std::vector<int32_t>> walked(const ServedModel& model, const std::string& fields) {
  const GenerationRequest request = parsed(model, fields);
  const auto sequence = request.sequence(model, 0, 1);
  std::pair<int, std::vector<int32_t>> outcome;
  if (!sequence.constraint) return {request.max_tokens, {}};
  for (int32_t i = 0; i < request.max_tokens; ++i) {
    const int32_t token = forced(*sequence.constraint);
    if (token < 0) {
      if (!outcome.second.empty()) break;
      ++outcome.first;
    } else {
      outcome.second.push_back(token);
    }
    sequence.constraint->accept(std::vector<int32_t>{token < 0 ? 'a' : token});
  }
  return outcome;
}

TEST(AnswerReserve, ClosesThinkingAtTheToken) {
  const ServedModel model = testing::served_model();
  const std::vector<int32_t> closing = {'\n', testing::kEndThink};
  const std::vector<int32_t> shorter = {testing::kEndThink};
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  struct Case {
    std::string fields;
    int free;
    std::vector<int32_t> forced;
  };
  const Case cases[] = {
      {R"(,"max_tokens":400)", 400 - 100 - 2, closing},
      {R"(,"max_tokens":400)" + tools, 400 - 200 - 2, closing},
      {R"(,"max_tokens":400,"answer_reserve":300)", 400 - 300 - 2, closing},
      {R"(,"max_tokens":400,"answer_reserve":5000)", 0, shorter},
      {R"(,"max_tokens":400,"answer_reserve":0)", 400, {}},
      {R"(,"max_tokens":400,"thinking_token_budget":20)", 20, closing},
      {R"(,"max_tokens":400,"thinking_token_budget":399)", 400 - 100 - 2, closing},
      {R"(,"max_tokens":12)", 12 - 4 - 2, closing},
      {R"(,"max_tokens":8)", 8 - 4 - 2, closing},
      {R"(,"max_tokens":4)", 0, closing},
      {R"(,"max_tokens":3)", 0, closing},
      {R"(,"max_tokens":2)", 0, shorter},
      {R"(,"max_tokens":1)", 1, {}},
      {R"(,"max_tokens":400,"enable_thinking":false)", 400, {}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(walked(model, c.fields), std::pair(c.free, c.forced)) << c.fields;
  }
  // Whatever the context holds, less the operator's reserve.
  ServedModel roomy = testing::served_model();
  roomy.context_max = 100'000;
  const int room = parsed(roomy, "").max_tokens;
  EXPECT_EQ(walked(roomy, "").first, room - 1024 - 2);
  roomy.policy.answer_reserve = 0;
  EXPECT_EQ(walked(roomy, "").first, room);
}

TEST(AnswerReserve, HoldsForEveryChoiceAndUnderDrafts) {
  const ServedModel model = testing::served_model();
  const GenerationRequest request = parsed(model, R"(,"max_tokens":40,"n":3)");
  for (size_t index = 0; index < 3; ++index) {
    const auto sequence = request.sequence(model, index, index);
    sequence.constraint->accept(std::vector<int32_t>(26, 'a'));
    EXPECT_EQ(forced(*sequence.constraint), -1);
    EXPECT_EQ(forced(*sequence.constraint, {'b'}), -1);
    EXPECT_EQ(forced(*sequence.constraint, {'b', 'c'}), '\n');
    EXPECT_EQ(forced(*sequence.constraint, {'b', 'c', '\n'}), testing::kEndThink);
    EXPECT_EQ(forced(*sequence.constraint, {'b', 'c', '\n', testing::kEndThink}), -1);
    EXPECT_EQ(forced(*sequence.constraint, {'b', testing::kEndThink, 'c'}), -1);
  }
}

TEST(AnswerReserve, CompletionsAreLeftAlone) {
  const ServedModel model = testing::served_model();
  ParsedRequest request =
      parse_generation_request(Api::completions, R"({"prompt":[258,10],"max_tokens":40})", model);
  EXPECT_EQ(std::get<GenerationRequest>(request).sequence(model, 0, 1).constraint, nullptr);
}

class AnswerReserveTest : public testing::ServerTest {
 protected:
  static std::string content(const Json& answer, size_t index = 0) {
    return at(at(choice(answer, index), "message"), "content").as_string();
  }
};

TEST_F(AnswerReserveTest, ContentComesHoweverLongTheThinking) {
  start(std::string(900, 't'));
  for (int tokens = 2; tokens < 40; ++tokens) {
    const Json answer = chat(concat(",\"n\":2,\"max_tokens\":", tokens));
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_FALSE(content(answer, i).empty()) << tokens;
      EXPECT_EQ(at(choice(answer, i), "finish_reason").as_string(), "length");
    }
    EXPECT_EQ(at(at(answer, "usage"), "completion_tokens").as_int(), 2 * tokens);
  }
  EXPECT_EQ(content(chat(R"(,"max_tokens":30,"answer_reserve":0)")), "");
  EXPECT_EQ(content(chat(R"(,"max_tokens":30,"answer_reserve":11)")), std::string(11, 't'));
}

TEST_F(AnswerReserveTest, TheOtherApisHaveItToo) {
  start(std::string(900, 't'));
  const auto [status, body] = ask(
      post("/v1/messages", R"({"max_tokens":20,"thinking":{"type":"enabled","budget_tokens":1024},)"
                           R"("messages":[{"role":"user","content":"hi"}]})"));
  EXPECT_EQ(status, 200);
  EXPECT_NE(body.find(R"({"type":"text","text":"ttttt"})"), std::string::npos) << body;
  const auto [code, response] =
      ask(post("/v1/responses", R"({"input":"hi","max_output_tokens":20,"answer_reserve":7})"));
  EXPECT_EQ(code, 200);
  EXPECT_NE(response.find(R"("text":"ttttttt")"), std::string::npos) << response;
}

TEST_F(AnswerReserveTest, AStructureHasRoomToBeWhole) {
  start(std::string(900, 't'));
  const Json answer = chat(R"(,"max_tokens":20,"regex":"\\{\"a\":[0-9]\\}")");
  EXPECT_EQ(content(answer), R"({"a":0})");
  EXPECT_EQ(at(choice(answer), "finish_reason").as_string(), "stop");
}

}  // namespace
}  // namespace nibble
