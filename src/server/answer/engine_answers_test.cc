// The parts of answers that the engine adds: log-probabilities of prompts, cached tokens, ends by
// time limit.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::kChat;
using testing::kCompletions;
using testing::post;

class EngineAnswersTest : public testing::ServerTest {
 protected:
  Json completion(const std::string& fields) {
    const auto [status, body] = ask(post(kCompletions, concat("{", fields, "}")));
    EXPECT_EQ(status, 200) << body;
    return parse_json(body, "the answer").value();
  }
  // Every scripted row has one logit of 10 among zeros.
  const double likely_ = 10 - std::log(std::exp(10.0) + testing::kVocabRows - 1);
  const double unlikely_ = -std::log(std::exp(10.0) + testing::kVocabRows - 1);
};

TEST_F(EngineAnswersTest, PromptLogprobsOfACompletion) {
  start("abc");
  const Json answer = completion(R"("prompt":"apq","prompt_logprobs":2,"max_tokens":2)");
  const Json::Array& list = at(choice(answer), "prompt_logprobs").as_array();
  ASSERT_EQ(list.size(), 3U);
  EXPECT_TRUE(list[0].is_null());
  const Json& p = at(list[1], "112");
  EXPECT_NEAR(at(p, "logprob").as_double(), likely_, 1e-9);
  EXPECT_EQ(at(p, "rank").as_int(), 1);
  EXPECT_EQ(at(p, "decoded_token").as_string(), "p");
  EXPECT_EQ(list[1].as_object().size(), 2U);  // p is one of the two best
  const Json& q = at(list[2], "113");
  EXPECT_NEAR(at(q, "logprob").as_double(), unlikely_, 1e-9);
  EXPECT_EQ(at(q, "rank").as_int(), 1 + 113);  // after p and the ids 0 to 112 but p
  EXPECT_EQ(list[2].as_object().size(), 3U);
  EXPECT_EQ(at(choice(answer), "text").as_string(), "ab");
}

TEST_F(EngineAnswersTest, PromptLogprobsOfAChatAreBesideTheChoices) {
  start("</think>ok");
  const Json answer = chat(R"(,"prompt_logprobs":0)");
  const Json::Array& list = at(answer, "prompt_logprobs").as_array();
  EXPECT_EQ(static_cast<int64_t>(list.size()), at(at(answer, "usage"), "prompt_tokens").as_int());
}

TEST_F(EngineAnswersTest, LongPromptsGetEveryLogprob) {
  start("abc");
  for (const int size : {1, 63, 64, 65, 128, 500}) {
    const Json answer =
        completion(concat(R"("prompt":")", std::string(static_cast<size_t>(size), 'p'),
                          R"(","prompt_logprobs":0,"max_tokens":1)"));
    EXPECT_EQ(at(choice(answer), "prompt_logprobs").as_array().size(), static_cast<size_t>(size));
  }
}

TEST_F(EngineAnswersTest, EchoedLogprobsBeginWithThePrompt) {
  start("abc");
  const Json answer = completion(R"("prompt":"pp","echo":true,"logprobs":1,"max_tokens":2)");
  const Json& logprobs = at(choice(answer), "logprobs");
  ASSERT_EQ(at(logprobs, "tokens").as_array().size(), 4U);
  EXPECT_TRUE(at(logprobs, "token_logprobs").as_array()[0].is_null());
  EXPECT_TRUE(at(logprobs, "top_logprobs").as_array()[0].is_null());
  for (size_t i = 1; i < 4; ++i)
    EXPECT_NEAR(at(logprobs, "token_logprobs").as_array()[i].as_double(), likely_, 1e-9);
  EXPECT_EQ(at(logprobs, "text_offset").as_array()[3].as_int(), 3);
  const Json scored = completion(R"("prompt":"pp","echo":true,"logprobs":1,"max_tokens":0)");
  EXPECT_EQ(at(at(choice(scored), "logprobs"), "tokens").as_array().size(), 2U);
  EXPECT_EQ(at(choice(scored), "text").as_string(), "pp");
  const auto streamed = events(post(
      kCompletions, R"({"prompt":"pp","echo":true,"logprobs":1,"max_tokens":2,"stream":true})"));
  const Json first = parse_json(streamed.front(), "chunk").value();
  EXPECT_EQ(at(choice(first), "text").as_string(), "pp");
  EXPECT_EQ(at(at(choice(first), "logprobs"), "tokens").as_array().size(), 2U);
}

TEST_F(EngineAnswersTest, ATimeLimitEndsTheAnswer) {
  start_script({}, {}, std::chrono::milliseconds(5));
  const std::string body = R"({"prompt":"p","max_tokens":900,"ignore_eos":true,"max_time_ms":60})";
  auto [status, text] = ask(post(kCompletions, body));
  for (int i = 1; i < 20 && status == 504; ++i)  // a slow machine had no token in that time
    std::tie(status, text) = ask(post(kCompletions, body));
  ASSERT_EQ(status, 200) << text;
  const Json answer = parse_json(text, "the answer").value();
  EXPECT_EQ(at(choice(answer), "finish_reason").as_string(), "length");
  EXPECT_EQ(at(choice(answer), "stop_reason").as_string(), "deadline");
  const int64_t made = at(at(answer, "usage"), "completion_tokens").as_int();
  EXPECT_GE(made, 1);
  EXPECT_LT(made, 100);
}

TEST_F(EngineAnswersTest, NothingInTimeIsATimeout) {
  start_script({}, {}, std::chrono::milliseconds(100));
  const auto [status, body] =
      ask(post(kCompletions, R"({"prompt":"p","max_tokens":9,"ignore_eos":true,"max_time_ms":1})"));
  // The first token may come in the pass that was under way when time ran out.
  if (status == 200) {
    EXPECT_NE(body.find("\"deadline\""), std::string::npos) << body;
  } else {
    EXPECT_EQ(status, 504) << body;
    EXPECT_NE(body.find("within the time limit of 1"), std::string::npos) << body;
  }
}

TEST_F(EngineAnswersTest, CachedTokensAreCountedOncePerPrompt) {
  start("abc");
  const std::string prompt(300, 'p');
  const auto usage = [&](const std::string& fields) {
    const Json answer = completion(concat(R"("prompt":")", prompt, "\",\"max_tokens\":2", fields));
    const Json& u = at(answer, "usage");
    EXPECT_EQ(at(u, "prompt_tokens").as_int(), 300);
    return at(at(u, "prompt_tokens_details"), "cached_tokens").as_int();
  };
  EXPECT_EQ(usage(R"(,"cache_salt":"mine")"), 0);
  const int64_t again = usage(R"(,"cache_salt":"mine")");
  EXPECT_GE(again, 128);
  EXPECT_EQ(again % 64, 0);
  EXPECT_EQ(usage(R"(,"cache_salt":"mine","n":2)"), again);
  EXPECT_EQ(usage(R"(,"cache_salt":"theirs")"), 0);
  EXPECT_EQ(usage(R"(,"cache_salt":"mine","prompt_logprobs":0)"), 0);  // all must be computed
}

TEST_F(EngineAnswersTest, CachedTokensOfSeveralPromptsAreTheirSum) {
  start("abc");
  const std::string less = concat("\"", std::string(150, 'p'), "\"");
  const std::string more = concat("\"", std::string(300, 'q'), "\"");
  const auto cached = [&](const std::string& prompt) {
    const Json answer = completion(concat(R"("max_tokens":2,"prompt":)", prompt));
    return at(at(at(answer, "usage"), "prompt_tokens_details"), "cached_tokens").as_int();
  };
  for (const std::string& prompt : {less, more}) EXPECT_EQ(cached(prompt), 0);
  const int64_t of_less = cached(less);
  const int64_t of_more = cached(more);
  EXPECT_GE(of_less, 64);
  EXPECT_GT(of_more, of_less);
  EXPECT_EQ(cached(concat("[", less, ",", more, "]")), of_less + of_more);
  EXPECT_EQ(cached(concat("[", more, ",", less, "]")), of_less + of_more);
}

}  // namespace
}  // namespace nibble
