// The whole server, over a raw socket, with a model that says a given script.
#include "server/server.h"

#include <gtest/gtest.h>

#include <cmath>

#include "server/routes/routes.h"
#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::get;
using testing::kChat;
using testing::kCompletions;
using testing::post;
using testing::RawClient;
using testing::ServerTest;

TEST_F(ServerTest, AnswersAChat) {
  start("I think.\n</think>\n\nHello!");
  const Json answer = chat("");
  const Json& message = at(choice(answer), "message");
  EXPECT_EQ(at(message, "content").as_string(), "Hello!");
  EXPECT_EQ(at(message, "reasoning_content").as_string(), "I think.");
  EXPECT_EQ(at(message, "reasoning").as_string(), "I think.");
  EXPECT_EQ(at(choice(answer), "finish_reason").as_string(), "stop");
  EXPECT_EQ(at(answer, "object").as_string(), "chat.completion");
  EXPECT_EQ(at(answer, "model").as_string(), "tiny");
  const Json& usage = at(answer, "usage");
  EXPECT_EQ(at(usage, "completion_tokens").as_int(), 9 + 1 + 2 + 6 + 1);
  EXPECT_EQ(at(at(usage, "completion_tokens_details"), "reasoning_tokens").as_int(), 10);
  EXPECT_EQ(at(usage, "total_tokens").as_int(),
            at(usage, "prompt_tokens").as_int() + at(usage, "completion_tokens").as_int());
  wait_for_log("generated, stop");
}

TEST_F(ServerTest, ThinkingOffMeansAllIsContent) {
  start("Hello!");
  const Json answer = chat(R"(,"chat_template_kwargs":{"enable_thinking":false})");
  EXPECT_EQ(at(at(choice(answer), "message"), "content").as_string(), "Hello!");
  EXPECT_EQ(at(choice(answer), "message").find("reasoning"), nullptr);
}

TEST_F(ServerTest, StreamsAChatLikeTheWhole) {
  start("I think.\n</think>\n\nHello!");
  const auto found =
      events(post(kChat, R"({"messages":[{"role":"user","content":"hi"}],"stream":true,)"
                         R"("stream_options":{"include_usage":true}})"));
  ASSERT_GE(found.size(), 5U);
  EXPECT_EQ(found.back(), "[DONE]");
  std::string reasoning;
  std::string content;
  std::string finish;
  for (size_t i = 0; i + 1 < found.size(); ++i) {
    const Json chunk = parse_json(found[i], "chunk").value();
    EXPECT_EQ(at(chunk, "object").as_string(), "chat.completion.chunk");
    if (i + 2 == found.size()) {
      EXPECT_TRUE(at(chunk, "choices").as_array().empty());
      EXPECT_EQ(at(at(chunk, "usage"), "completion_tokens").as_int(), 19);
      continue;
    }
    const Json& delta = at(choice(chunk), "delta");
    EXPECT_TRUE(i > 0 || at(delta, "role") == Json("assistant"));
    if (const Json* text = delta.find("content")) content += text->as_string();
    if (const Json* text = delta.find("reasoning_content")) reasoning += text->as_string();
    const Json& reason = at(choice(chunk), "finish_reason");
    if (!reason.is_null()) finish = reason.as_string();
  }
  EXPECT_EQ(reasoning, "I think.");
  EXPECT_EQ(content, "Hello!");
  EXPECT_EQ(finish, "stop");
}

TEST_F(ServerTest, CallsTools) {
  start(
      "</think>\n\nLet me look.\n\n<tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n"
      "<parameter=s>\na\"b\n</parameter>\n</function>\n</tool_call>");
  const std::string tools =
      R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":)"
      R"({"n":{"type":"integer"},"s":{"type":"string"}}}}},{"type":"web_search"}])";
  const Json answer = chat(tools);
  const Json& message = at(choice(answer), "message");
  EXPECT_EQ(at(message, "content").as_string(), "Let me look.");
  const Json& call = at(message, "tool_calls").as_array().at(0);
  EXPECT_EQ(at(at(call, "function"), "name").as_string(), "f");
  EXPECT_EQ(at(at(call, "function"), "arguments").as_string(), R"({"n": 5, "s": "a\"b"})");
  EXPECT_EQ(at(choice(answer), "finish_reason").as_string(), "tool_calls");
  EXPECT_EQ(at(at(choice(chat(tools + R"(,"tool_choice":"none")")), "message"), "content")
                .as_string()
                .substr(0, 25),
            "Let me look.\n\n<tool_call>");

  std::string arguments;
  std::string id;
  for (const std::string& event :
       events(post(kChat, concat(R"({"messages":[{"role":"user","content":"hi"}],"stream":true)",
                                 tools, "}")))) {
    if (event == "[DONE]") break;
    const Json chunk = parse_json(event, "chunk").value();
    const Json* calls = at(choice(chunk), "delta").find("tool_calls");
    if (calls == nullptr) continue;
    ASSERT_EQ(calls->as_array().size(), 1U);
    const Json& delta = calls->as_array()[0];
    if (const Json* given = delta.find("id")) {
      EXPECT_TRUE(id.empty());
      id = given->as_string();
      EXPECT_EQ(at(at(delta, "function"), "name").as_string(), "f");
    }
    arguments += at(at(delta, "function"), "arguments").as_string();
  }
  EXPECT_TRUE(id.starts_with("call_"));
  EXPECT_EQ(arguments, R"({"n": 5, "s": "a\"b"})");
}

TEST_F(ServerTest, OneCallOnlyWhenParallelCallsAreOff) {
  const std::string call = "<tool_call>\n<function=f>\n</function>\n</tool_call>";
  start("</think>\n\n" + call + "\n" + call);
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(at(at(choice(chat(tools)), "message"), "tool_calls").as_array().size(), 2U);
  const Json one = chat(tools + R"(,"parallel_tool_calls":false)");
  EXPECT_EQ(at(at(choice(one), "message"), "tool_calls").as_array().size(), 1U);
  EXPECT_EQ(at(choice(one), "finish_reason").as_string(), "tool_calls");
}

TEST_F(ServerTest, StopsAtStopStringsAndTrimsThem) {
  start("</think>\n\nalpha STOP omega");
  const Json answer = chat(R"(,"stop":["never","STOP"])");
  EXPECT_EQ(at(at(choice(answer), "message"), "content").as_string(), "alpha ");
  EXPECT_EQ(at(choice(answer), "finish_reason").as_string(), "stop");
  EXPECT_EQ(at(choice(answer), "stop_reason").as_string(), "STOP");
  EXPECT_EQ(at(at(answer, "usage"), "completion_tokens").as_int(), 1 + 2 + 10);
  const auto found = events(
      post(kChat, R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"stop":"STOP"})"));
  std::string content;
  for (const std::string& event : found) {
    if (event == "[DONE]") continue;
    const Json chunk = parse_json(event, "chunk").value();
    if (const Json* text = at(choice(chunk), "delta").find("content")) content += text->as_string();
  }
  EXPECT_EQ(content, "alpha ");
}

TEST_F(ServerTest, SeveralChoicesAndPrompts) {
  start("abc");
  const auto [status, body] =
      ask(post(kCompletions, R"({"prompt":["p","q"],"n":2,"max_tokens":2,"logprobs":1})"));
  ASSERT_EQ(status, 200) << body;
  const Json answer = parse_json(body, "answer").value();
  ASSERT_EQ(at(answer, "choices").as_array().size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(at(choice(answer, i), "index").as_int(), static_cast<int64_t>(i));
    EXPECT_EQ(at(choice(answer, i), "text").as_string(), "ab");
    EXPECT_EQ(at(choice(answer, i), "finish_reason").as_string(), "length");
    EXPECT_EQ(at(at(choice(answer, i), "logprobs"), "tokens").as_array().size(), 2U);
    EXPECT_EQ(at(at(choice(answer, i), "logprobs"), "text_offset").as_array()[1].as_int(), 1);
  }
  EXPECT_EQ(at(at(answer, "usage"), "prompt_tokens").as_int(), 2);
  EXPECT_EQ(at(at(answer, "usage"), "completion_tokens").as_int(), 8);
}

TEST_F(ServerTest, GivesLogprobsOfAChat) {
  start("</think>ok");
  const Json answer = chat(R"(,"logprobs":true,"top_logprobs":2)");
  const Json::Array& content = at(at(choice(answer), "logprobs"), "content").as_array();
  ASSERT_EQ(content.size(), 3U);
  EXPECT_EQ(at(content[1], "token").as_string(), "o");
  EXPECT_EQ(at(content[1], "bytes").as_array()[0].as_int(), 'o');
  EXPECT_NEAR(at(content[1], "logprob").as_double(), 10 - std::log(std::exp(10.0) + 299), 1e-9);
  EXPECT_EQ(at(content[1], "top_logprobs").as_array().size(), 2U);
}

TEST_F(ServerTest, ListsModelsHealthAndVersion) {
  start("x");
  EXPECT_EQ(ask(get("/health")).first, 200);
  EXPECT_NE(ask(get("/version")).second.find("\"version\""), std::string::npos);
  const Json list = parse_json(ask(get("/v1/models")).second, "list").value();
  ASSERT_EQ(at(list, "data").as_array().size(), 2U + 7U);  // its names, each profile once
  EXPECT_EQ(at(at(list, "data").as_array()[2], "id").as_string(), "tiny:thinking-general");
  EXPECT_EQ(ask(get("/v1/models/thinking-general")).first, 200);  // not listed, and taken
  EXPECT_EQ(ask(get("/v1/models/alias:thinking-general")).first, 200);
  EXPECT_EQ(at(at(list, "data").as_array()[0], "id").as_string(), "tiny");
  EXPECT_EQ(at(at(list, "data").as_array()[0], "max_model_len").as_int(), 1024);
  EXPECT_EQ(ask(get("/v1/models/alias")).first, 200);
  EXPECT_EQ(ask(get("/v1/models/%61lias")).first, 200);
  EXPECT_EQ(ask(get("/v1/models/alias%")).first, 404);
  EXPECT_EQ(ask(get("/v1/models/other")).first, 404);
}

class UnlistedNames : public testing::ServerTest {
 protected:
  ServedModel model() const override {
    ServedModel made = testing::ServerTest::model();
    made.unlisted_names = {"/home/me/tiny"};
    return made;
  }
};

TEST_F(UnlistedNames, AreTakenAndNeverShown) {
  ServerOptions options;
  options.list_profiles = ProfileListing::off;
  start("x", options);
  const std::string list = ask(get("/v1/models")).second;
  EXPECT_EQ(at(parse_json(list, "list").value(), "data").as_array().size(), 2U);
  const char* kBodies[][2] = {
      {kChat, R"("messages":[{"role":"user","content":"a"}],"max_tokens":9)"},
      {kCompletions, R"("prompt":"a","max_tokens":2)"},
      {"/v1/messages", R"("messages":[{"role":"user","content":"a"}],"max_tokens":9)"},
      {"/v1/responses", R"("input":"a","max_output_tokens":9)"},
  };
  for (const char* name : {"/home/me/tiny", "/home/me/tiny:instruct", "%2Fhome%2Fme%2Ftiny"}) {
    std::string card = ask(get(concat("/v1/models/", name))).second;
    EXPECT_EQ(card.find("/home"), std::string::npos) << card;
    EXPECT_NE(card.find("\"id\":\"tiny"), std::string::npos) << card;
    for (const auto& [path, fields] : kBodies) {
      if (*name == '%') continue;
      const auto [status, body] =
          ask(post(path, concat(R"({"model":")", name, "\",", fields, "}")));
      EXPECT_EQ(status, 200) << body;
      EXPECT_EQ(body.find("/home"), std::string::npos) << body;
      EXPECT_NE(body.find("\"model\":\"tiny"), std::string::npos) << body;
    }
  }
  EXPECT_EQ(ask(get("/v1/models/%2Fhome%2Fme%2Fother")).first, 404);
}

TEST_F(ServerTest, RefusesWhatItDoesNotRoute) {
  start("x");
  EXPECT_EQ(ask(get("/nothing")).first, 404);
  EXPECT_NE(ask(get("/models")).second.find("it is /v1/models here"), std::string::npos);
  for (const char* path : {"/v1/v1/models", "//v1/models", "/v1/models/", "/v1//v1///models//"})
    EXPECT_NE(ask(get(path)).second.find("it is /v1/models here: take"), std::string::npos) << path;
  EXPECT_EQ(ask(get("/v1/v1/x")).second.find("it is"), std::string::npos);
  EXPECT_EQ(ask(get("/v1/models/")).first, 404);
  EXPECT_EQ(ask(get(kChat)).first, 405);
  EXPECT_EQ(header("Allow"), "POST");
  EXPECT_EQ(ask("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n").first, 405);
  EXPECT_EQ(
      ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}").first,
      415);
  EXPECT_EQ(ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
                "Content-Length: 2\r\n\r\n{}")
                .first,
            415);
}

TEST_F(ServerTest, EveryRouteButTheOpenOnesNeedsTheKey) {
  ServerOptions options;
  options.api_keys = {"sesame", "other-key"};
  start("x", options);
  for (const Route& route : server_routes()) {
    const bool folder = route.path.size() > 1 && route.path.ends_with('/');
    const std::string path = concat(
        route.path, route.path == "/assets/" ? "style.css" : (folder ? "tiny" : ""), route.tail);
    for (const char* header : {"", "Authorization: Bearer wrong\r\n", "Authorization: Bearer \r\n",
                               "Authorization: sesame\r\n", "Authorization: Bearer sesam\r\n",
                               "Authorization: Bearer sesamee\r\n", "x-api-key: SESAME\r\n"}) {
      const std::string request =
          concat(route.method, " ", path, " HTTP/1.1\r\nHost: localhost\r\n", header,
                 "Content-Length: 0\r\n\r\n");
      EXPECT_EQ(ask(request).first, route.access == Access::open ? 200 : 401) << request;
    }
  }
  EXPECT_EQ(ask(get("/nothing")).first, 401);  // nor does anyone learn what exists
  EXPECT_EQ(ask(get("/v1/models", "Authorization: Bearer sesame\r\n")).first, 200);
  EXPECT_EQ(ask(get("/v1/models", "x-api-key: other-key\r\n")).first, 200);
}

TEST_F(ServerTest, SleepsAndIsWokenByARequest) {
  ServerOptions options;
  options.admin_routes = AdminRoutes::on_every_socket;
  start("x", options);
  const auto rest = [&](const char* path) {
    return ask(concat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"))
        .first;
  };
  const auto sleeping = [&] { return ask(get("/is_sleeping")).second; };
  EXPECT_EQ(sleeping(), R"({"is_sleeping":false})");
  EXPECT_EQ(rest("/sleep?level=1"), 200);
  EXPECT_EQ(sleeping(), R"({"is_sleeping":true})");
  EXPECT_EQ(ask(get("/health")).first, 200);
  chat("");
  EXPECT_EQ(sleeping(), R"({"is_sleeping":false})");
  EXPECT_EQ(rest("/sleep"), 200);
  EXPECT_EQ(rest("/wake_up"), 200);
  EXPECT_EQ(sleeping(), R"({"is_sleeping":false})");
}

TEST_F(ServerTest, WithoutKeysAnyTokenPasses) {
  start("x");
  EXPECT_EQ(ask(get("/v1/models", "Authorization: Bearer whatever\r\n")).first, 200);
}

/// A request that is not cancelled ends by its length, twenty seconds later.
TEST_F(ServerTest, CancelsWhenTheClientLeaves) {
  start_script({}, {}, std::chrono::milliseconds(20));  // 'x' for ever
  const std::string body = R"({"prompt":"p","max_tokens":1000,"stream":true})";
  RawClient client(server_->port());
  client.send(post(kCompletions, body));
  client.read_until("data: ");
  client.close();
  wait_for_log("client gone");
  EXPECT_EQ(cancelled_of(1), 1);
  EXPECT_LT(metric("nibble_generation_tokens_total"), 1000);
  {
    std::lock_guard lock(mutex_);
    log_.clear();
  }
  RawClient silent(server_->port());
  silent.send(post(kCompletions, R"({"prompt":"p","max_tokens":1000,"n":8})"));
  silent.close();
  wait_for_log("client gone");
  EXPECT_EQ(cancelled_of(9), 9);
  EXPECT_LT(metric("nibble_generation_tokens_total"), 4000);
}

TEST_F(ServerTest, SaysWhenTheModelComputesNonsense) {
  start_script({'a', testing::kNanToken}, {}, std::chrono::milliseconds(20));
  const auto [status, body] = ask(post(kCompletions, R"({"prompt":"p","max_tokens":10})"));
  EXPECT_EQ(status, 500);
  EXPECT_NE(body.find("not a number"), std::string::npos);
  const auto found = events(post(kCompletions, R"({"prompt":"p","max_tokens":10,"stream":true})"));
  ASSERT_GE(found.size(), 1U);
  EXPECT_NE(found.back().find("{\"error\":"), std::string::npos);
  EXPECT_EQ(ask(get("/health")).first, 200);
}

TEST_F(ServerTest, AnswersQueueFullWith429) {
  start_script({}, {}, std::chrono::milliseconds(50));
  const auto [too_many, text] =
      ask(post(kCompletions, R"({"prompt":"p","max_tokens":900,"n":13})"));
  EXPECT_EQ(too_many, 429) << text;
  EXPECT_EQ(cancelled_of(12), 12);  // those that had been accepted
  RawClient busy(server_->port());
  busy.send(post(kCompletions, R"({"prompt":"p","max_tokens":900,"stream":true,"n":12})"));
  busy.read_until("data: ");
  EXPECT_EQ(ask(post(kCompletions, R"({"prompt":"p","max_tokens":1})")).first, 429);
  busy.close();
  EXPECT_EQ(cancelled_of(24), 24);
  EXPECT_EQ(ask(post(kCompletions, R"({"prompt":"p","max_tokens":1})")).first, 200);
}

TEST_F(ServerTest, DrainsOnTerminate) {
  start("abc");
  RawClient idle(server_->port());
  idle.send(get("/health"));
  idle.read_until("ok");
  server_->terminate();
  thread_.join();
  EXPECT_FALSE(RawClient(server_->port()).connected());
  server_.reset();
}

}  // namespace
}  // namespace nibble
