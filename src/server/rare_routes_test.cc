// Answers that few requests get of a whole server: while others run, at the end, to browsers.
#include <gtest/gtest.h>

#include <csignal>

#include "server/testing/media_requests.h"
#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::get;
using testing::kCompletions;
using testing::post;
using testing::RawClient;

class RareRoutes : public testing::ServerTest {
 protected:
  static std::string empty_post(std::string_view path) {
    return concat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
  }
};

TEST_F(RareRoutes, AStreamedCompletionBeginsWithTheIdsOfItsPrompt) {
  start("abc");
  const auto told =
      events(post(kCompletions, R"({"prompt":"pq","stream":true,"return_token_ids":true})"));
  ASSERT_GE(told.size(), 2U);
  for (size_t i = 0; i + 1 < told.size(); ++i) {
    const Json chunk = parse_json(told[i], "a chunk").value();
    const Json* ids = choice(chunk).find("prompt_token_ids");
    ASSERT_EQ(ids != nullptr, i == 0) << told[i];
    EXPECT_EQ(ids != nullptr ? ids->dump() : "[112,113]", "[112,113]");
  }
}

TEST_F(RareRoutes, EffortIsAWordOfTheTemplateAndNoneIsNoThinking) {
  start("abc");
  const auto prompt = [&](const std::string& fields) {
    const auto [status, body] = ask(post(
        "/apply-template", concat(R"({"messages":[{"role":"user","content":"hi"}])", fields, "}")));
    EXPECT_EQ(status, 200) << body;
    return at(parse_json(body, "the prompt").value(), "prompt").as_string();
  };
  const std::string thinks = prompt("");
  const std::string does_not = prompt(R"(,"enable_thinking":false)");
  EXPECT_NE(thinks, does_not);
  EXPECT_EQ(prompt(R"(,"reasoning_effort":"none")"), does_not);
  EXPECT_EQ(prompt(R"(,"reasoning_effort":"low")"), thinks);
  EXPECT_EQ(prompt(R"(,"reasoning_effort":"none","enable_thinking":true)"), thinks);
  EXPECT_EQ(prompt(R"(,"enable_thinking":true,"chat_template_kwargs":{"enable_thinking":false})"),
            does_not);
}

TEST_F(RareRoutes, TextRoutesRefuseInTheShapeOfTheirApi) {
  start("abc");
  for (const char* path : {"/tokenize", "/detokenize", "/apply-template",
                           "/v1/messages/count_tokens", "/v1/responses/input_tokens"})
    for (const char* body : {"{", "[]", "{}"}) {
      const auto [status, text] = ask(post(path, body));
      EXPECT_EQ(status, 400) << path << body;
      const bool anthropic = std::string_view(path).starts_with("/v1/messages");
      EXPECT_EQ(text.starts_with(R"({"type":"error")"), anthropic) << path << text;
      EXPECT_EQ(text.starts_with(R"({"error":)"), !anthropic) << path << text;
    }
  EXPECT_EQ(ask(post("/tokenize", R"({"prompt":"a","return_token_strs":1})")).first, 400);
}

TEST_F(RareRoutes, NobodySleepsWhileRequestsRun) {
  ServerOptions options;
  options.admin_routes = AdminRoutes::on_every_socket;
  start_script({}, options, std::chrono::milliseconds(50));
  RawClient client(server_->port());
  client.send(post(kCompletions, R"({"prompt":"p","max_tokens":1000,"stream":true})"));
  client.read_until("data: ");
  const auto [status, body] = ask(empty_post("/sleep"));
  EXPECT_EQ(status, 409) << body;
  EXPECT_EQ(ask(get("/is_sleeping")).second, R"({"is_sleeping":false})");
  client.close();
  EXPECT_EQ(cancelled_of(1), 1);
  EXPECT_EQ(ask(empty_post("/sleep")).first, 200);
}

TEST_F(RareRoutes, PagesOfAnySiteMayAskWhereTheOperatorSaysSo) {
  ServerOptions options;
  options.api_keys = {"sesame"};
  options.allowed_origins = {"*"};
  start("abc", options);
  EXPECT_EQ(ask(get("/health", "Origin: https://any.example\r\n")).first, 200);
  EXPECT_EQ(header("Access-Control-Allow-Origin"), "https://any.example");
  EXPECT_EQ(header("Access-Control-Expose-Headers"), "*");
  EXPECT_EQ(ask("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: https://any.example\r\n"
                "Access-Control-Request-Method: GET\r\n\r\n")
                .first,
            200);
  EXPECT_EQ(header("Access-Control-Allow-Methods"), "GET, POST, DELETE");
  EXPECT_EQ(header("Access-Control-Allow-Headers"), "Authorization, Content-Type");
  EXPECT_EQ(header("Access-Control-Max-Age"), "600");
}

TEST_F(RareRoutes, ALineOfTheLogIsForPeople) {
  start("abc");
  const auto line = [&](const std::string& request) {
    {
      const std::lock_guard lock(mutex_);
      log_.clear();
    }
    ask(request);
    wait_for_log("ms in all");
    std::string text = log();
    for (size_t at = 0; (at = text.find_first_of("0123456789.", at)) != std::string::npos; ++at)
      if (text[at] == '.' || (at > 0 && text[at - 1] == '#'))
        text.erase(at--, 1);
      else
        text[at] = '#';
    return text;
  };
  EXPECT_EQ(line(post(kCompletions, R"({"prompt":"p","max_tokens":2})", "x-request-id: mine\r\n")),
            "mine /v#/completions model tiny: status #, # prompt tokens (# cached), # generated, "
            "length, first token after # ms, # ms in all\n");
  EXPECT_EQ(line(post("/v1/no", "{}", "x-request-id: mine\r\n")),
            "mine /v#/no: status #, # ms in all\n");
  EXPECT_EQ(line(post("/no", "{}",
                      concat("x-request-id: mine\r\ntraceparent: 00-", std::string(32, 'a'), "-",
                             std::string(16, 'b'), "-01\r\n"))),
            concat("mine /no trace ", std::string(32, 'a'), ": status #, # ms in all\n"));
}

TEST_F(RareRoutes, ASignalEndsTheServer) {
  start("abc");
  RawClient idle(server_->port());
  EXPECT_EQ(ask(idle, get("/health")).first, 200);
  EXPECT_EQ(::kill(::getpid(), SIGTERM), 0);
  thread_.join();
  EXPECT_FALSE(RawClient(server_->port()).connected());
  server_.reset();
}

class WithImages : public testing::ServerTest {
 protected:
  ServedModel model() const override { return testing::model_with_images(options_); }
  ImageIntakeOptions options_ = testing::image_options();
};

TEST_F(WithImages, CardsSayWhatAModelReads) {
  const auto modalities = [&] {
    start("abc");
    const Json card = parse_json(ask(get("/v1/models/tiny")).second, "a card").value();
    WithImages::TearDown();
    return at(card, "input_modalities").dump();
  };
  EXPECT_EQ(modalities(), R"(["text","image","video"])");
  options_.videos.videos_max = 0;
  EXPECT_EQ(modalities(), R"(["text","image"])");
  options_.images_max = 0;
  EXPECT_EQ(modalities(), R"(["text"])");
}

}  // namespace
}  // namespace nibble
