// Serving fields end to end: budgets, repetition, echo, choices and seeds, time limits, usage.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <set>

#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::kChat;
using testing::kCompletions;
using testing::post;
using testing::RawClient;

class ServingTest : public testing::ServerTest {
 protected:
  Json completion(const std::string& fields) {
    const auto [status, body] =
        ask(post(kCompletions, concat(R"({"prompt":"prompt")", fields, "}")));
    EXPECT_EQ(status, 200) << body;
    return parse_json(body, "the answer").value();
  }
  /// Texts of a streamed completion by choice, and whether each had exactly one end.
  std::vector<std::string> streamed(const std::string& fields, size_t choices) {
    std::vector<std::string> texts(choices);
    std::vector<int> ends(choices);
    const std::string body = concat(R"({"prompt":"prompt","stream":true)", fields, "}");
    for (const std::string& event : events(post(kCompletions, body))) {
      if (event == "[DONE]") continue;
      const Json chunk = parse_json(event, "chunk").value();
      const auto index = static_cast<size_t>(at(choice(chunk), "index").as_int());
      texts.at(index) += at(choice(chunk), "text").as_string();
      ends.at(index) += at(choice(chunk), "finish_reason").is_null() ? 0 : 1;
    }
    EXPECT_EQ(ends, std::vector<int>(choices, 1));
    return texts;
  }
  static std::vector<std::string> texts(const Json& answer) {
    std::vector<std::string> found;
    for (const Json& one : at(answer, "choices").as_array())
      found.push_back(at(one, "text").as_string());
    return found;
  }
};

TEST_F(ServingTest, ThinkingIsClosedWhenItsBudgetIsSpent) {
  start("I think and think and think.\n</think>\n\nHello!");
  for (const char* name : {"thinking_token_budget", "max_thinking_tokens"}) {
    const Json answer = chat(concat(",\"", name, "\":7,\"max_tokens\":20"));
    const Json& message = at(choice(answer), "message");
    EXPECT_EQ(at(message, "reasoning_content").as_string(), "I think");
    // The script goes on as if it had said those two tokens.
    EXPECT_EQ(at(message, "content").as_string(), "nd think an");
    const Json& details = at(at(answer, "usage"), "completion_tokens_details");
    EXPECT_EQ(at(details, "reasoning_tokens").as_int(), 7 + 2);
  }
  EXPECT_EQ(
      at(at(choice(chat(R"(,"thinking_token_budget":100)")), "message"), "content").as_string(),
      "Hello!");
}

TEST_F(ServingTest, LoopsEndAsRepetition) {
  start("</think>fine so far, la la la la la la la");
  const std::string detect = R"(,"repetition_detection":{"max_pattern_size":5,"min_count":4})";
  const Json answer = chat(detect);
  EXPECT_EQ(at(choice(answer), "finish_reason").as_string(), "repetition");
  EXPECT_EQ(at(choice(answer), "stop_reason").as_string(), "repetition_detected");
  EXPECT_EQ(at(at(choice(answer), "message"), "content").as_string(), "fine so far, la la la la");
  EXPECT_EQ(at(choice(chat("")), "finish_reason").as_string(), "stop");
  const Json stopped = chat(detect + R"(,"stop":"far")");
  EXPECT_EQ(at(choice(stopped), "finish_reason").as_string(), "stop");
  EXPECT_EQ(at(choice(stopped), "stop_reason").as_string(), "far");
}

TEST_F(ServingTest, NoStopStringBeforeMinTokens) {
  start("a.b.c.d");
  EXPECT_EQ(texts(completion(R"(,"stop":".")"))[0], "a");
  EXPECT_EQ(texts(completion(R"(,"stop":".","min_tokens":4)"))[0], "a.b.c");
  EXPECT_EQ(streamed(R"(,"stop":".","min_tokens":4)", 1)[0], "a.b.c");
}

TEST_F(ServingTest, StopIdsWaitForMinTokensAndEosCanBeIgnored) {
  start("abc");
  EXPECT_EQ(texts(completion(""))[0], "abc");
  // The fourth token is <|im_end|>; forbidden, the best of the rest is token 0.
  const Json longer = completion(R"(,"min_tokens":6,"max_tokens":8)");
  EXPECT_EQ(at(at(longer, "usage"), "completion_tokens").as_int(), 8);
  const Json ignored = completion(R"(,"ignore_eos":true,"max_tokens":6)");
  EXPECT_EQ(texts(ignored)[0], "abcxx");
  EXPECT_EQ(at(choice(ignored), "finish_reason").as_string(), "length");
  const Json by_id = completion(R"(,"stop_token_ids":[98])");
  EXPECT_EQ(texts(by_id)[0], "a");
  EXPECT_EQ(at(choice(by_id), "stop_reason").as_int(), 98);
}

TEST_F(ServingTest, TheStopIsTheEndOfTheAnswerWhereAsked) {
  start("a.b.c");
  const std::string kept = R"(,"stop":".","include_stop_str_in_output":true)";
  EXPECT_EQ(texts(completion(kept))[0], "a.");
  EXPECT_EQ(streamed(kept, 1)[0], "a.");
  EXPECT_EQ(at(choice(completion(kept)), "stop_reason").as_string(), ".");
  EXPECT_EQ(texts(completion(kept + R"(,"min_tokens":3)"))[0], "a.b.");
  const std::string by_id = R"(,"stop_token_ids":[98],"include_stop_str_in_output":true)";
  EXPECT_EQ(texts(completion(by_id))[0], "a.b");
  EXPECT_EQ(texts(completion(R"(,"include_stop_str_in_output":true)"))[0], "a.b.c");
}

TEST_F(ServingTest, TokensAndWordsCanBeForbidden) {
  start("abcd");
  EXPECT_EQ(texts(completion(R"(,"allowed_token_ids":[97],"max_tokens":4)"))[0], "aaaa");
  const std::string text = texts(completion(R"(,"bad_words":["bc"],"max_tokens":4)"))[0];
  EXPECT_TRUE(text.starts_with("ab")) << text;
  EXPECT_NE(text[2], 'c');
  EXPECT_EQ(texts(completion(R"(,"bad_words":["bd"],"max_tokens":4)"))[0], "abcd");
}

TEST_F(ServingTest, LogprobsHoldTheChosenTokenAndCanCallItById) {
  start("ab");
  const Json none = at(choice(completion(R"(,"logprobs":0)")), "logprobs");
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(at(none, "top_logprobs").as_array()[i].as_object().size(), 1U);
  const Json by_id =
      at(choice(completion(R"(,"logprobs":1,"return_tokens_as_token_ids":true)")), "logprobs");
  EXPECT_EQ(at(by_id, "tokens").as_array()[0].as_string(), "token_id:97");
  EXPECT_NE(at(by_id, "top_logprobs").as_array()[1].find("token_id:98"), nullptr);
  EXPECT_EQ(at(by_id, "text_offset").as_array()[1].as_int(), 1);
}

TEST_F(ServingTest, ChoicesDifferAndRepeatWithTheirSeed) {
  start_script({});
  const std::string fields = R"(,"n":4,"temperature":50,"max_tokens":12,"ignore_eos":true,"seed":)";
  const auto first = texts(completion(fields + "5"));
  EXPECT_EQ(first.size(), 4U);
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 4U);
  EXPECT_EQ(texts(completion(fields + "5")), first);
  EXPECT_NE(texts(completion(fields + "6")), first);
  EXPECT_EQ(streamed(fields + "5", 4), first);
  // A choice draws its own numbers however many there are.
  const auto fewer = texts(completion(R"(,"n":2,"temperature":50,"max_tokens":12,)"
                                      R"("ignore_eos":true,"seed":5)"));
  EXPECT_EQ(fewer, std::vector<std::string>(first.begin(), first.begin() + 2));
}

TEST_F(ServingTest, PaddingIsNeverSampled) {
  start_script({});
  const Json answer = completion(
      R"(,"n":8,"temperature":100,"max_tokens":60,"ignore_eos":true,"seed":1,"logprobs":20)");
  for (const Json& one : at(answer, "choices").as_array())
    for (const Json& token : at(at(one, "logprobs"), "tokens").as_array())
      EXPECT_FALSE(token.as_string().empty());  // an id without a token has no text
}

TEST_F(ServingTest, EchoGivesThePromptFirst) {
  start("abc");
  EXPECT_EQ(texts(completion(R"(,"echo":true)"))[0], "promptabc");
  EXPECT_EQ(streamed(R"(,"echo":true,"n":2)", 2), (std::vector<std::string>(2, "promptabc")));
  const Json none = completion(R"(,"echo":true,"max_tokens":0)");
  EXPECT_EQ(texts(none)[0], "prompt");
  EXPECT_EQ(at(choice(none), "finish_reason").as_string(), "length");
  EXPECT_EQ(at(at(none, "usage"), "completion_tokens").as_int(), 0);
}

TEST_F(ServingTest, BadTimeHeaderIsRefused) {
  start("abc");
  const auto [status, body] =
      ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
          "X-Request-Timeout: soon\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"p\"}");
  EXPECT_EQ(status, 400) << body;
  EXPECT_NE(body.find("X-Request-Timeout"), std::string::npos) << body;
}

TEST_F(ServingTest, ARefusalForLackOfRoomSaysWhenToComeBack) {
  start_script({}, {}, std::chrono::milliseconds(20));
  RawClient client(server_->port());
  client.send(post(kCompletions, R"({"prompt":"p","max_tokens":900,"n":13,"stream":true})"));
  const std::string answer = client.read_until("\r\n\r\n");
  EXPECT_EQ(answer.substr(9, 3), "429") << answer;
  EXPECT_NE(answer.find("Retry-After: "), std::string::npos) << answer;
}

/// Costs stay those that are assumed, so that what is predicted depends on the queue alone.
class FullQueueTest : public testing::ServerTest {
 protected:
  EngineSettings settings() const override {
    EngineSettings settings = ServerTest::settings();
    settings.clock_ms = [] { return 1000.0; };
    return settings;
  }
};

TEST_F(FullQueueTest, ARefusalSaysTheFirstWholeSecondAfterThePredictedOne) {
  start_script({}, {}, std::chrono::milliseconds(20));
  RawClient busy(server_->port());
  busy.send(post(kCompletions, R"({"prompt":"p","max_tokens":900,"n":12,"stream":true})"));
  const auto predicted = [&] { return metric("nibble_first_token_predicted_seconds"); };
  const auto full = [&] {
    return metric("nibble_num_requests_running") == 4 && metric("nibble_num_requests_waiting") == 8;
  };
  EXPECT_TRUE(testing::soon([&] { return full() && predicted() > 1.0; }));
  const double seconds = predicted();
  ASSERT_GT(seconds, 1.0);
  ASSERT_LT(seconds, std::ceil(seconds));
  EXPECT_EQ(ask(post(kCompletions, R"({"prompt":"p","max_tokens":9})")).first, 429);
  EXPECT_EQ(header("Retry-After"), concat(static_cast<int>(std::ceil(seconds))));
}

}  // namespace
}  // namespace nibble
