// Watching and ending requests that run: progress of the prompt, cancelling by id.
#include <gtest/gtest.h>

#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::kChat;
using testing::kCompletions;
using testing::post;
using testing::RawClient;

class RequestRoutes : public testing::ServerTest {
 protected:
  /// Returns the text that follows `key":"`.
  static std::string after(const std::string& text, const std::string& key) {
    const size_t at = text.find(concat("\"", key, "\":\""));
    if (at == std::string::npos) return {};
    const size_t begin = at + key.size() + 4;
    return text.substr(begin, text.find('"', begin) - begin);
  }
  std::pair<int, std::string> cancel(const std::string& path, const std::string& headers = "") {
    return ask(concat("POST ", path, "/cancel HTTP/1.1\r\nHost: localhost\r\n", headers,
                      "Content-Length: 0\r\n\r\n"));
  }
};

TEST_F(RequestRoutes, AStreamTellsHowFarThePromptIs) {
  start_script(testing::script_of("abc"), {}, std::chrono::milliseconds(20));
  const std::string body = concat(R"({"stream":true,"return_progress":true,"n":2,"prompt":")",
                                  std::string(700, 'p'), R"("})");
  for (const int round : {0, 1}) {
    std::vector<Json> told;
    std::string text;
    for (const std::string& event : events(post(kCompletions, body))) {
      if (event == "[DONE]") continue;
      const Json chunk = parse_json(event, "chunk").value();
      if (at(choice(chunk), "index").as_int() == 0) text += at(choice(chunk), "text").as_string();
      const Json* progress = chunk.find("prompt_progress");
      if (progress == nullptr) continue;
      EXPECT_TRUE(text.empty());
      EXPECT_EQ(at(*progress, "total").as_int(), 700);
      EXPECT_GE(at(*progress, "time_ms").as_int(), 0);
      told.push_back(*progress);
    }
    EXPECT_EQ(text, "abc");
    ASSERT_EQ(told.size(), round == 0 ? 3U : 2U);  // 512 rows at once; then from the cache
    EXPECT_EQ(at(told.front(), "processed").as_int(), at(told.front(), "cache").as_int());
    EXPECT_EQ(at(told.back(), "processed").as_int(), 700);
    EXPECT_EQ(at(told.back(), "cache").as_int() > 0, round == 1);
  }
  // Where progress was not asked for, or there is no stream, nothing is sent.
  const std::string chat = R"({"stream":true,"messages":[{"role":"user","content":"hi"}]})";
  for (const std::string& event : events(post(kChat, chat)))
    EXPECT_EQ(event.find("prompt_progress"), std::string::npos);
}

TEST_F(RequestRoutes, AStreamIsCancelledByItsKeyAlone) {
  ServerOptions options;
  options.api_keys = {"mine", "theirs"};
  start_script({}, options, std::chrono::milliseconds(50));
  RawClient client(server_->port());
  client.send(post(kChat, R"({"stream":true,"messages":[{"role":"user","content":"hi"}]})",
                   "Authorization: Bearer mine\r\nx-request-id: r 1\r\n"));
  const std::string head = client.read_until("reasoning");
  const std::string id = after(head, "id");
  ASSERT_TRUE(id.starts_with("chatcmpl-")) << head;
  EXPECT_EQ(cancel("/v1/requests/" + id, "Authorization: Bearer theirs\r\n").first, 404);
  EXPECT_EQ(cancel("/v1/requests/none", "Authorization: Bearer mine\r\n").first, 404);
  EXPECT_EQ(cancel("/v1/requests/" + id + "/x", "Authorization: Bearer mine\r\n").first, 404);
  EXPECT_EQ(cancel("/v1/requests/" + id).first, 401);
  const auto [status, body] = cancel("/v1/requests/" + id, "Authorization: Bearer mine\r\n");
  EXPECT_EQ(status, 200);
  EXPECT_EQ(body, concat(R"({"id":")", id, R"(","cancelled":1})"));
  const std::string rest = client.read_until("0\r\n\r\n");
  EXPECT_NE(rest.find(R"("finish_reason":"abort","stop_reason":"cancelled")"), std::string::npos);
  EXPECT_NE(rest.find("data: [DONE]"), std::string::npos);
  EXPECT_EQ(cancel("/v1/requests/" + id, "Authorization: Bearer mine\r\n").first, 404);
}

TEST_F(RequestRoutes, AWholeAnswerIsWhatWasSaidSoFar) {
  start_script({}, {}, std::chrono::milliseconds(50));
  RawClient client(server_->port());
  client.send(
      post(kCompletions, R"({"prompt":"p","max_tokens":900,"n":2})", "x-request-id: run-7\r\n"));
  while (cancel("/v1/requests/run-7").first != 200) {
  }
  const std::string answer = client.read_until("total_tokens");
  EXPECT_EQ(answer.substr(9, 3), "200");
  EXPECT_NE(answer.find(R"("finish_reason":"abort")"), std::string::npos) << answer;
}

TEST_F(RequestRoutes, ARequestOfAnotherApiIsCancelledByTheRouteOfResponses) {
  start_script({}, {}, std::chrono::milliseconds(50));
  RawClient client(server_->port());
  client.send(post(kChat, R"({"stream":true,"messages":[{"role":"user","content":"hi"}]})",
                   "x-request-id: run-8\r\n"));
  client.read_until("reasoning");
  const auto [status, body] = cancel("/v1/responses/run-8");
  EXPECT_EQ(status, 200);
  EXPECT_EQ(body, R"({"id":"run-8","cancelled":1})");
  EXPECT_NE(client.read_until("0\r\n\r\n").find("[DONE]"), std::string::npos);
}

TEST_F(RequestRoutes, AResponseIsCancelled) {
  start_script({}, {}, std::chrono::milliseconds(50));
  RawClient client(server_->port());
  client.send(post("/v1/responses", R"({"input":"hi","stream":true})"));
  const std::string id = after(client.read_until("output_item.added"), "id");
  ASSERT_TRUE(id.starts_with("resp_")) << id;
  const auto [status, body] = cancel("/v1/responses/" + id);
  EXPECT_EQ(status, 200);
  const Json response = parse_json(body, "body").value();
  EXPECT_EQ(at(response, "id").as_string(), id);
  EXPECT_EQ(at(response, "status").as_string(), "cancelled");
  const std::string rest = client.read_until("0\r\n\r\n");
  EXPECT_NE(rest.find("event: response.incomplete"), std::string::npos) << rest;
  EXPECT_NE(rest.find(R"("status":"cancelled")"), std::string::npos);
}

}  // namespace
}  // namespace nibble
