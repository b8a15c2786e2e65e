// Fields of answers that clients ask for beyond the text: ids of tokens, usage in every chunk, the
// fingerprint, offsets; and prompts cut to their end.
#include <gtest/gtest.h>

#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::get;
using testing::kChat;
using testing::kCompletions;
using testing::kImEnd;
using testing::post;

class AnswerFields : public testing::ServerTest {
 protected:
  Json answer_of(const std::string& path, const std::string& request) {
    const auto [status, body] = ask(post(path, request));
    EXPECT_EQ(status, 200) << body;
    return parse_json(body, "the answer").value();
  }
  /// The chunks of a stream, without its end.
  std::vector<Json> chunks(const std::string& path, const std::string& request) {
    std::vector<Json> found;
    for (const std::string& event : events(post(path, request)))
      if (event != "[DONE]") found.push_back(parse_json(event, "a chunk").value());
    return found;
  }
  static std::vector<int64_t> numbers(const Json& list) {
    std::vector<int64_t> out;
    for (const Json& number : list.as_array()) out.push_back(number.as_int());
    return out;
  }
};

constexpr const char* kHi = R"("messages":[{"role":"user","content":"hi"}])";

TEST_F(AnswerFields, IdsOfTokens) {
  start("ab</think>\n\ncd");
  std::vector<int64_t> said;
  for (const int32_t id : testing::script_of("ab</think>\n\ncd")) said.push_back(id);
  EXPECT_EQ(said.back(), kImEnd);  // counted and told, as in vLLM
  const Json whole = answer_of(kChat, concat("{", kHi, R"(,"return_token_ids":true})"));
  EXPECT_EQ(numbers(at(choice(whole), "token_ids")), said);
  EXPECT_EQ(static_cast<int64_t>(said.size()),
            at(at(whole, "usage"), "completion_tokens").as_int());
  const std::vector<int64_t> prompt = numbers(at(whole, "prompt_token_ids"));
  EXPECT_EQ(prompt.front(), testing::kImStart);
  EXPECT_EQ(static_cast<int64_t>(prompt.size()), at(at(whole, "usage"), "prompt_tokens").as_int());

  std::vector<int64_t> streamed;
  const auto told = chunks(kChat, concat("{", kHi, R"(,"return_token_ids":true,"stream":true})"));
  EXPECT_EQ(numbers(at(told.front(), "prompt_token_ids")), prompt);
  for (const Json& chunk : told)
    if (const Json* ids = choice(chunk).find("token_ids"))
      for (const int64_t id : numbers(*ids)) streamed.push_back(id);
  EXPECT_EQ(streamed, said);
  for (size_t i = 1; i < told.size(); ++i) EXPECT_EQ(told[i].find("prompt_token_ids"), nullptr);

  // A completion's prompt stands in its choices; of several choices each has its own.
  const Json two = answer_of(
      kCompletions, R"({"prompt":["p","qr"],"n":2,"max_tokens":3,"return_token_ids":true})");
  EXPECT_EQ(two.find("prompt_token_ids"), nullptr);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(numbers(at(choice(two, i), "prompt_token_ids")),
              i < 2 ? (std::vector<int64_t>{'p'}) : (std::vector<int64_t>{'q', 'r'}));
    EXPECT_EQ(numbers(at(choice(two, i), "token_ids")).size(), 3U);
  }
  const Json without = answer_of(kChat, concat("{", kHi, "}"));
  EXPECT_EQ(without.find("prompt_token_ids"), nullptr);
  EXPECT_EQ(choice(without).find("token_ids"), nullptr);
}

/// Trainers read ids and log-probabilities beside each other: one of each for every sampled token.
TEST_F(AnswerFields, LogprobsAreAsManyAsIds) {
  start("ab</think>\n\ncd");
  const std::string ask = concat("{", kHi, R"(,"logprobs":true,"return_token_ids":true)");
  const auto count = [](const Json& told) {
    return at(at(told, "logprobs"), "content").as_array().size();
  };
  const Json whole = answer_of(kChat, ask + "}");
  const size_t ids = numbers(at(choice(whole), "token_ids")).size();
  EXPECT_EQ(ids, testing::script_of("ab</think>\n\ncd").size());
  EXPECT_EQ(count(choice(whole)), ids);
  size_t streamed = 0;
  for (const Json& chunk : chunks(kChat, ask + R"(,"stream":true})"))
    if (at(choice(chunk), "logprobs").is_object()) streamed += count(choice(chunk));
  EXPECT_EQ(streamed, ids);

  const auto counted = [&](std::string_view fields) {
    return count(choice(answer_of(kChat, concat("{", kHi, R"(,"logprobs":true)", fields, "}"))));
  };
  EXPECT_EQ(counted(""), ids - 1);  // those of the text
  EXPECT_EQ(counted(R"(,"return_tokens_as_token_ids":true)"), ids);
  EXPECT_EQ(counted(R"(,"include_stop_str_in_output":true)"), ids);
  const Json completion = answer_of(
      kCompletions, R"({"prompt":"p","max_tokens":90,"logprobs":1,"return_token_ids":true})");
  EXPECT_EQ(at(at(choice(completion), "logprobs"), "tokens").as_array().size(),
            numbers(at(choice(completion), "token_ids")).size());
}

TEST_F(AnswerFields, UsageInEveryChunk) {
  start("ab</think>\n\ncd");
  for (const char* path : {kChat, kCompletions}) {
    const std::string body = concat(path == kChat ? kHi : R"("prompt":"hi")", R"(,"stream":true,)",
                                    R"("n":2,"stream_options":{"include_usage":true,)");
    int64_t before = 0;
    const auto told = chunks(path, concat("{", body, R"("continuous_usage_stats":true}})"));
    for (const Json& chunk : told) {
      const Json& usage = at(chunk, "usage");
      const int64_t now = at(usage, "completion_tokens").as_int();
      EXPECT_GE(now, before);
      before = now;
      EXPECT_EQ(at(usage, "total_tokens").as_int(), now + at(usage, "prompt_tokens").as_int());
    }
    EXPECT_EQ(before, 2 * 8);
    EXPECT_TRUE(at(told.back(), "choices").as_array().empty());
    const auto quiet = chunks(path, concat("{", body, R"("continuous_usage_stats":false}})"));
    for (const Json& chunk : quiet)
      EXPECT_EQ(chunk.find("usage") != nullptr, &chunk == &quiet.back());
  }
  // It adds, as it does in vLLM, to include_usage and means nothing alone.
  for (const Json& chunk : chunks(kChat, concat("{", kHi, R"(,"stream":true,"stream_options":)",
                                                R"({"continuous_usage_stats":true}})")))
    EXPECT_EQ(chunk.find("usage"), nullptr);
}

TEST_F(AnswerFields, TimingsOfTheServer) {
  start_script(testing::script_of("abcdefgh"), {}, std::chrono::milliseconds(10));
  const std::string body =
      R"({"prompt":"hi","stream":true,"stream_options":{"include_usage":true})";
  const Json timings =
      at(chunks(kCompletions, body + R"(,"return_progress":true})").back(), "timings");
  EXPECT_EQ(at(timings, "predicted_n").as_int(), 8);
  EXPECT_EQ(at(timings, "prompt_n").as_int(), 2);
  EXPECT_EQ(at(timings, "cache_n").as_int(), 0);
  EXPECT_GE(at(timings, "prompt_ms").as_double(), 10.0);
  EXPECT_GE(at(timings, "predicted_ms").as_double(), 7 * 10.0);
  EXPECT_NEAR(at(timings, "predicted_per_second").as_double(),
              7e3 / at(timings, "predicted_ms").as_double(), 1e-6);
  EXPECT_EQ(chunks(kCompletions, body + "}").back().find("timings"), nullptr);
}

TEST_F(AnswerFields, TheFingerprintStaysTheSame) {
  start("x");
  const std::string print =
      at(answer_of(kChat, concat("{", kHi, "}")), "system_fingerprint").as_string();
  EXPECT_TRUE(print.starts_with("fp_")) << print;
  EXPECT_EQ(at(answer_of(kCompletions, R"({"prompt":"p","max_tokens":2})"), "system_fingerprint"),
            Json(print));
  for (const Json& chunk : chunks(kChat, concat("{", kHi, R"(,"stream":true})")))
    EXPECT_EQ(at(chunk, "system_fingerprint"), Json(print));
}

TEST_F(AnswerFields, OffsetsCountCharacters) {
  start("xxxx");
  const Json answer =
      answer_of(kCompletions, R"({"prompt":"a\u00e9b","echo":true,"logprobs":0,"max_tokens":2})");
  const Json& logprobs = at(choice(answer), "logprobs");
  // One token is one byte here: half of a letter is shown as one replacement character.
  EXPECT_EQ(numbers(at(logprobs, "text_offset")), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST_F(AnswerFields, PromptsAreCutToTheirEnd) {
  start("xxxx");
  const auto prompt = [&](const std::string& text, const std::string& fields) {
    const Json answer = answer_of(
        kCompletions, concat(R"({"return_token_ids":true,"prompt":")", text, "\",", fields, "}"));
    std::string out;
    for (const int64_t id : numbers(at(choice(answer), "prompt_token_ids")))
      out.push_back(static_cast<char>(id));
    return out;
  };
  EXPECT_EQ(prompt("abcdef", R"("max_tokens":1,"truncate_prompt_tokens":2)"), "ef");
  EXPECT_EQ(prompt("abcdef", R"("max_tokens":1,"truncate_prompt_tokens":6)"), "abcdef");
  const auto sided = [](std::string_view side) {
    return concat(R"("max_tokens":1,"truncate_prompt_tokens":2,"truncation_side":")", side, "\"");
  };
  EXPECT_EQ(prompt("abcdef", sided("right")), "ab");
  EXPECT_EQ(prompt("abcdef", sided("left")), "ef");
  EXPECT_EQ(prompt("abcdef", R"("max_tokens":1,"truncate_prompt_tokens":1024)"), "abcdef");
  EXPECT_EQ(prompt("abcdef", R"("max_tokens":1,"truncate_prompt_tokens":-1)"), "abcdef");
  const std::string longer = std::string(2000, 'l') + "end";
  EXPECT_EQ(prompt(longer, R"("max_tokens":24,"truncate_prompt_tokens":-1)").size(), 1000U);
  EXPECT_EQ(prompt(longer, R"("max_tokens":-1,"truncate_prompt_tokens":-1)").size(), 1023U);
  EXPECT_TRUE(prompt(longer, R"("max_tokens":1,"truncate_prompt_tokens":-1)").ends_with("lend"));
  const auto [status, body] =
      ask(post(kCompletions, concat(R"({"max_tokens":1,"prompt":")", longer, "\"}")));
  EXPECT_EQ(status, 400) << body;
  // A chat in turns: what is cut off moves the places worth remembering.
  const std::string chat = concat(
      R"({"max_tokens":1,"truncate_prompt_tokens":300,"messages":[{"role":"user","content":")",
      std::string(900, 'u'), R"("}]})");
  EXPECT_EQ(at(at(answer_of(kChat, chat), "usage"), "prompt_tokens").as_int(), 300);
  const Json again = answer_of(kChat, chat);
  EXPECT_GT(at(at(at(again, "usage"), "prompt_tokens_details"), "cached_tokens").as_int(), 0);
}

TEST_F(AnswerFields, NumbersAsOtherLanguagesWriteThem) {
  start("xxxx");
  const Json answer =
      answer_of(kChat, concat("{", kHi, R"(,"n":2.0,"max_tokens":3.0,"top_k":1e0,"seed":7.0})"));
  EXPECT_EQ(at(answer, "choices").as_array().size(), 2U);
  EXPECT_EQ(at(at(answer, "usage"), "completion_tokens").as_int(), 6);
  const Json open = answer_of(kChat, concat("{", kHi, R"(,"max_tokens":-1})"));
  EXPECT_EQ(at(at(open, "usage"), "completion_tokens").as_int(), 5);
  answer_of(kChat, concat("{", kHi, R"(,"max_completion_tokens":-1})"));
}

TEST_F(AnswerFields, NamesOfSchemesHaveNoCase) {
  ServerOptions options;
  options.api_keys = {"sesame"};
  start("x", options);
  for (const char* scheme : {"Bearer ", "bearer ", "BEARER  "})
    EXPECT_EQ(ask(get("/v1/models", concat("Authorization: ", scheme, "sesame\r\n"))).first, 200);
  for (const char* header : {"Bearersesame", "Basic sesame", "Bearer", "Bearer ", "bearer sesam"})
    EXPECT_EQ(ask(get("/v1/models", concat("Authorization: ", header, "\r\n"))).first, 401)
        << header;
}

TEST_F(AnswerFields, ThreadsAreRefusedInTheWordsOfTheClient) {
  start("x");
  const auto [status, body] =
      ask(post("/v1/messages", concat("{", kHi, R"(,"max_tokens":5,"thread":{"type":"new"}})")));
  EXPECT_EQ(status, 400);
  const Json error = at(parse_json(body, "the error").value(), "error");
  EXPECT_EQ(at(error, "type").as_string(), "invalid_request_error");
  EXPECT_EQ(at(at(error, "details"), "error_code").as_string(), "thread_unsupported_request");
}

}  // namespace
}  // namespace nibble
