// The Messages and Responses APIs and the text routes over HTTP, with a model that says a script.
#include <gtest/gtest.h>

#include <array>

#include "server/answer/answer_writer.h"
#include "server/testing/test_server.h"
#include "text/tokenizer/tokenizer_utf8.h"

namespace nibble {
namespace {

using namespace testing;

constexpr const char* kMessages = "/v1/messages";
constexpr const char* kResponses = "/v1/responses";
constexpr const char* kScript =
    "why</think>\n\nI look.<tool_call>\n<function=w>\n<parameter=at>\nRome\n</parameter>\n"
    "</function>\n</tool_call>";
constexpr const char* kTool = R"("tools":[{"name":"w","input_schema":{"type":"object",)"
                              R"("properties":{"at":{"type":"string"}}}}])";
constexpr const char* kFlatTool =
    R"("tools":[{"type":"function","name":"w","parameters":{"type":"object",)"
    R"("properties":{"at":{"type":"string"}}}}])";

class OtherApis : public ServerTest {
 protected:
  Json json(const std::string& text) { return parse_json(text, "the answer").value(); }
  std::string message_body(const std::string& more) {
    return concat(R"({"model":"claude-any","max_tokens":500,)",
                  R"("messages":[{"role":"user","content":"hi"}],)",
                  R"("thinking":{"type":"adaptive"})", more, "}");
  }
  /// Types of a stream's events, repeated ones once.
  static std::vector<std::string> types(const std::vector<Json>& events) {
    std::vector<std::string> found;
    for (const Json& event : events) {
      const std::string& type = at(event, "type").as_string();
      if (found.empty() || found.back() != type) found.push_back(type);
    }
    return found;
  }
  static std::string text_in(const Json& delta) {
    for (const char* name : {"thinking", "text", "partial_json"})
      if (const Json* piece = delta.find(name)) return piece->as_string();
    return {};
  }
  std::vector<Json> stream(const char* path, const std::string& body) {
    std::vector<Json> found;
    for (const std::string& data : events(post(path, body))) found.push_back(json(data));
    return found;
  }
};

TEST_F(OtherApis, AMessageHasBlocksInOrder) {
  start(kScript);
  const auto [status, body] = ask(post(kMessages, message_body(concat(",", kTool))));
  ASSERT_EQ(status, 200) << body;
  const Json message = json(body);
  EXPECT_EQ(at(message, "type").as_string(), "message");
  EXPECT_EQ(at(message, "model").as_string(), "claude-any");
  EXPECT_EQ(at(message, "stop_reason").as_string(), "tool_use");
  const Json::Array& content = at(message, "content").as_array();
  ASSERT_EQ(content.size(), 3U);
  EXPECT_EQ(at(content[0], "thinking").as_string(), "why");
  EXPECT_EQ(at(content[1], "text").as_string(), "I look.");
  EXPECT_EQ(at(content[2], "name").as_string(), "w");
  EXPECT_EQ(at(content[2], "input").dump(), R"({"at":"Rome"})");
  EXPECT_GT(at(at(message, "usage"), "input_tokens").as_int(), 5);
  EXPECT_GT(at(at(message, "usage"), "output_tokens").as_int(), 20);
}

TEST_F(OtherApis, AStreamedMessageIsTheSame) {
  start(kScript);
  const std::vector<Json> seen =
      stream(kMessages, message_body(concat(R"(,"stream":true,)", kTool)));
  EXPECT_EQ(types(seen), (std::vector<std::string>{
                             "message_start", "content_block_start", "content_block_delta",
                             "content_block_stop", "content_block_start", "content_block_delta",
                             "content_block_stop", "content_block_start", "content_block_delta",
                             "content_block_stop", "message_delta", "message_stop"}));
  std::array<std::string, 3> said;
  for (const Json& event : seen) {
    if (at(event, "type").as_string() != "content_block_delta") continue;
    const Json& delta = at(event, "delta");
    const int64_t index = at(event, "index").as_int();
    said[static_cast<size_t>(index)] += text_in(delta);
  }
  EXPECT_EQ(said[0], "why");
  EXPECT_EQ(said[1], "I look.");
  EXPECT_EQ(json(said[2]).dump(), R"({"at":"Rome"})");
  EXPECT_EQ(at(at(seen[seen.size() - 2], "delta"), "stop_reason").as_string(), "tool_use");
}

TEST_F(OtherApis, MessagesStopForTheirReasons) {
  start("</think>\n\none two three");
  const auto reason = [&](const std::string& more) {
    const Json message = json(ask(post(kMessages, message_body(more))).second);
    return at(message, "stop_reason").as_string() + " " + at(message, "stop_sequence").dump();
  };
  EXPECT_EQ(reason(""), "end_turn null");
  EXPECT_EQ(reason(R"(,"stop_sequences":["two"])"), "stop_sequence \"two\"");
  const std::string short_one =
      R"({"max_tokens":3,"messages":[{"role":"user","content":"hi"}],"model":"tiny"})";
  EXPECT_EQ(at(json(ask(post(kMessages, short_one)).second), "stop_reason").as_string(),
            "max_tokens");
  // More than the context holds is what it holds.
  const std::string greedy =
      R"({"max_tokens":99999,"messages":[{"role":"user","content":"hi"}],"model":"tiny"})";
  EXPECT_EQ(ask(post(kMessages, greedy)).first, 200);
}

TEST_F(OtherApis, ErrorsAreInTheShapeOfTheirApi) {
  start("x");
  const auto [status, body] = ask(post(kMessages, R"({"messages":[]})"));
  EXPECT_EQ(status, 400);
  EXPECT_EQ(at(json(body), "type").as_string(), "error");
  EXPECT_EQ(at(at(json(body), "error"), "type").as_string(), "invalid_request_error");
  const auto [missing, why] =
      ask(post(kMessages, R"({"model":"gpt","messages":[{"role":"user","content":"x"}]})"));
  EXPECT_EQ(missing, 404);
  EXPECT_EQ(at(at(json(why), "error"), "type").as_string(), "not_found_error");
  const auto [stored, response] =
      ask(post(kResponses, R"({"input":"x","previous_response_id":"r"})"));
  EXPECT_EQ(stored, 400);
  EXPECT_EQ(at(at(json(response), "error"), "param").as_string(), "previous_response_id");
  EXPECT_EQ(ask(post("/v1/embeddings", "{}")).first, 501);
  const std::pair<int, const char*> kTypes[] = {{400, "invalid_request_error"},
                                                {401, "authentication_error"},
                                                {403, "permission_error"},
                                                {404, "not_found_error"},
                                                {413, "request_too_large"},
                                                {429, "rate_limit_error"},
                                                {500, "api_error"},
                                                {503, "overloaded_error"}};
  for (const auto& [number, type] : kTypes)
    EXPECT_EQ(at(at(anthropic_error({.status = number}), "error"), "type").as_string(), type);
}

/// The grammar's library quotes one byte of a character; the answer is UTF-8 all the same.
TEST_F(OtherApis, ErrorsAreUtf8WhateverTheyQuote) {
  start("x");
  const auto [status, body] = ask(post("/v1/completions", R"({"prompt":"x","ebnf":"\u00c1.o"})"));
  EXPECT_EQ(status, 400);
  EXPECT_EQ(valid_utf8_prefix(body), body.size());
  EXPECT_NE(body.find("\xEF\xBF\xBD"), std::string::npos) << body;
  const ApiError cut{.message = "found \xC3"};
  for (const Api api : {Api::chat, Api::messages, Api::responses})
    EXPECT_NE(error_response(api, cut).body.find("found \xEF\xBF\xBD\""), std::string::npos);
  for (const Api api : {Api::chat, Api::completions, Api::messages, Api::responses}) {
    const GenerationRequest request{.api = api};
    const auto writer = make_answer_writer({.head = {}, .request = request, .names = {}});
    EXPECT_NE(writer->error(cut).find("found \xEF\xBF\xBD\""), std::string::npos);
  }
}

TEST_F(OtherApis, AResponseHasItemsInOrder) {
  start(kScript);
  const auto [status, body] = ask(
      post(kResponses, concat(R"({"model":"tiny","input":"hi","temperature":0,)", kFlatTool, "}")));
  ASSERT_EQ(status, 200) << body;
  const Json response = json(body);
  EXPECT_EQ(at(response, "status").as_string(), "completed");
  EXPECT_EQ(at(response, "temperature").as_int(), 0);
  const Json::Array& output = at(response, "output").as_array();
  ASSERT_EQ(output.size(), 3U);
  EXPECT_EQ(at(at(output[0], "content").as_array()[0], "text").as_string(), "why");
  EXPECT_EQ(at(at(output[1], "content").as_array()[0], "text").as_string(), "I look.");
  EXPECT_EQ(at(output[2], "arguments").as_string(), R"({"at": "Rome"})");
  EXPECT_EQ(at(output[2], "status").as_string(), "completed");
  EXPECT_GT(at(at(response, "usage"), "total_tokens").as_int(), 20);
}

TEST_F(OtherApis, AStreamedResponseIsNumberedAndEndsWhole) {
  start(kScript);
  const std::vector<Json> seen =
      stream(kResponses, concat(R"({"input":"hi","stream":true,)", kFlatTool, "}"));
  ASSERT_GT(seen.size(), 10U);
  for (size_t i = 0; i < seen.size(); ++i)
    EXPECT_EQ(at(seen[i], "sequence_number").as_int(), static_cast<int64_t>(i));
  EXPECT_EQ(
      types(seen),
      (std::vector<std::string>{
          "response.created", "response.in_progress", "response.output_item.added",
          "response.content_part.added", "response.reasoning_text.delta",
          "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
          "response.output_item.added", "response.content_part.added", "response.output_text.delta",
          "response.output_text.done", "response.content_part.done", "response.output_item.done",
          "response.output_item.added", "response.function_call_arguments.delta",
          "response.function_call_arguments.done", "response.output_item.done",
          "response.completed"}));
  const Json& response = at(seen.back(), "response");
  EXPECT_EQ(at(response, "output").as_array().size(), 3U);
  const Json cut = json(ask(post(kResponses, R"({"input":"hi","max_output_tokens":2})")).second);
  EXPECT_EQ(at(cut, "status").as_string(), "incomplete");
  EXPECT_EQ(at(at(cut, "incomplete_details"), "reason").as_string(), "max_output_tokens");
}

/// The tokens of the text alone, in whole answers and in streams.
TEST_F(OtherApis, ResponsesHaveLogprobsWhereTheyAreIncluded) {
  start("why</think>\n\nHello");
  const std::string asked =
      R"("include":["message.output_text.logprobs"],"top_logprobs":2,"temperature":0})";
  const auto words_of = [](const Json& logprobs) {
    std::string words;
    for (const Json& entry : logprobs.as_array()) {
      EXPECT_EQ(at(entry, "top_logprobs").as_array().size(), 2U);
      words += at(entry, "token").as_string();
    }
    return words;
  };
  const auto part_of = [](const Json& response) {
    return at(at(response, "output").as_array()[1], "content").as_array()[0];
  };
  const Json whole = json(ask(post(kResponses, R"({"input":"hi",)" + asked)).second);
  EXPECT_EQ(words_of(at(part_of(whole), "logprobs")), "\n\nHello");
  std::string streamed;
  const std::vector<Json> seen = stream(kResponses, R"({"input":"hi","stream":true,)" + asked);
  for (const Json& event : seen)
    if (at(event, "type").as_string() == "response.output_text.delta")
      streamed += words_of(at(event, "logprobs"));
  EXPECT_EQ(streamed, "\n\nHello");
  EXPECT_EQ(words_of(at(part_of(at(seen.back(), "response")), "logprobs")), "\n\nHello");
  const Json none = json(ask(post(kResponses, R"({"input":"hi","top_logprobs":2})")).second);
  EXPECT_TRUE(at(part_of(none), "logprobs").as_array().empty());
  EXPECT_EQ(ask(post(kResponses, R"({"input":"hi","include":["message.output_text.logprobs"],)"
                                 R"("top_logprobs":21})"))
                .first,
            400);
}

TEST_F(OtherApis, TextRoutes) {
  start("x");
  const auto answer = [&](const char* path, const std::string& body) {
    const auto [status, text] = ask(post(path, body));
    EXPECT_EQ(status, 200) << text;
    return json(text);
  };
  const Json tokens = answer("/tokenize", R"({"prompt":"ab<think>","return_token_strs":true})");
  EXPECT_EQ(at(tokens, "count").as_int(), 9);  // text of a client is no tag
  EXPECT_EQ(at(tokens, "token_strs").as_array()[1].as_string(), "b");
  EXPECT_EQ(at(answer("/tokenize", R"({"content":"abc"})"), "tokens").dump(), "[97,98,99]");
  const std::string chat = R"({"messages":[{"role":"user","content":"hi"}]})";
  const Json rendered = answer("/apply-template", chat);
  EXPECT_EQ(at(rendered, "prompt").as_string(),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n");
  const int64_t count = at(answer("/tokenize", chat), "count").as_int();
  EXPECT_EQ(at(rendered, "count").as_int(), count);
  EXPECT_EQ(at(answer("/v1/responses/input_tokens", R"({"input":"hi"})"), "input_tokens").as_int(),
            count);
  EXPECT_EQ(
      at(answer("/v1/messages/count_tokens",
                R"({"thinking":{"type":"adaptive"},"messages":[{"role":"user","content":"hi"}]})"),
         "input_tokens")
          .as_int(),
      count);
  EXPECT_EQ(at(answer("/detokenize", R"({"tokens":[97,258,98]})"), "prompt").as_string(),
            "a<think>b");
  for (const char* bad :
       {"{}", R"({"tokens":"a"})", R"({"tokens":[300]})", R"({"tokens":[1.5]})", "7"})
    EXPECT_EQ(ask(post("/detokenize", bad)).first, 400) << bad;
  EXPECT_EQ(ask(post("/tokenize", "{}")).first, 400);
  const std::string longer(2000, 'a');  // than the context: counted all the same
  EXPECT_EQ(at(answer("/tokenize", concat(R"({"prompt":")", longer, "\"}")), "count").as_int(),
            2000);
  EXPECT_EQ(at(json(ask(get("/tokenizer_info")).second), "vocab_size").as_int(), 300);
  EXPECT_EQ(ask(get("/load")).second, R"({"server_load":0})");
  EXPECT_EQ(ask(get("/ready")).first, 200);
}

}  // namespace
}  // namespace nibble
