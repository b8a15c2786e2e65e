// A server that ends: what clients and probes are told meanwhile, and how long it waits.
#include <gtest/gtest.h>

#include <future>

#include "server/testing/gated_server.h"

namespace nibble {
namespace {

using testing::kChat;
using testing::kCompletions;
using testing::post;
using testing::RawClient;

/// The answer to a request that comes by another way than a socket.
class Heard final : public HttpExchange {
 public:
  void respond(HttpResponse response) override { told_.set_value(std::move(response)); }
  void start_stream(HttpResponse response) override { told_.set_value(std::move(response)); }
  void write(std::string) override {}
  void finish_stream() override {}
  void on_gone(std::function<void()>) override {}
  HttpResponse wait() { return told_.get_future().get(); }

 private:
  std::promise<HttpResponse> told_;
};

class StoppingTest : public testing::GatedServerTest {
 protected:
  HttpResponse hear(const std::string& method, const std::string& path,
                    const std::string& body = "") {
    const auto heard = std::make_shared<Heard>();
    server_->submit({.method = method,
                     .path = path,
                     .headers = {{"content-type", "application/json"}, {"host", "localhost"}},
                     .body = body},
                    heard);
    return heard->wait();
  }
};

constexpr const char* kHi = R"({"messages":[{"role":"user","content":"hi"}]})";

TEST_F(StoppingTest, WhatRunsIsFinishedAndNothingNewIsTaken) {
  ServerOptions options;
  options.drain_wait = testing::kPatience;
  start("</think>\n\nto the end", options);
  RawClient client(server_->port());
  client.send(post(kChat, kHi));
  gate_->wait_for_one();
  EXPECT_EQ(hear("GET", "/health").body, R"({"status":"ok"})");
  server_->terminate();
  wait_for_log(concat("stopping: answers still running: 1; at most ", testing::kPatience.count(),
                      " s, a second signal ends them"));
  for (const char* path : {"/health", "/ready"}) {
    const HttpResponse probed = hear("GET", path);
    EXPECT_EQ(probed.status, 503) << path;
    EXPECT_EQ(probed.body, R"({"status":"draining"})") << path;
  }
  EXPECT_EQ(hear("GET", "/live").status, 200);
  const std::pair<const char*, std::string> kRequests[] = {
      {kChat, kHi},
      {kCompletions, R"({"prompt":"p"})"},
      {"/v1/messages", R"({"max_tokens":5,"messages":[{"role":"user","content":"hi"}]})"},
      {"/v1/responses", R"({"input":"hi"})"}};
  for (const auto& [path, body] : kRequests) {
    const HttpResponse refused = hear("POST", path, body);
    EXPECT_EQ(refused.status, 503) << path;
    EXPECT_NE(refused.body.find("the server is shutting down"), std::string::npos) << path;
    EXPECT_EQ(refused.body.find(R"("overloaded_error")") != std::string::npos,
              std::string_view(path) == "/v1/messages")
        << refused.body;
  }
  gate_->open();
  const std::string answer = client.read_all();
  EXPECT_NE(answer.find("to the end"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos) << answer;
  thread_.join();
  server_.reset();
}

TEST_F(StoppingTest, NothingIsSaidWhereNothingRuns) {
  start("x");
  server_->terminate();
  thread_.join();
  server_.reset();
  EXPECT_EQ(log().find("stopping"), std::string::npos) << log();
}

/// 'x' for ever: only the wait's end makes an end of it before the context is full.
class DrainTest : public testing::ServerTest {};

TEST_F(DrainTest, WhatRunsTooLongIsCancelled) {
  ServerOptions options;
  options.drain_wait = std::chrono::milliseconds(20);
  start_script({}, options, std::chrono::milliseconds(50));
  RawClient client(server_->port());
  client.send(post(kCompletions, R"({"prompt":"p","max_tokens":1000,"stream":true})"));
  EXPECT_NE(client.read_until("data: ").find("200 OK"), std::string::npos);
  server_->terminate();
  const std::string rest = client.read_all();
  EXPECT_EQ(rest.find(R"("finish_reason":"length")"), std::string::npos) << rest;
  thread_.join();
  server_.reset();
}

TEST_F(StoppingTest, StatsTellOfWhatRuns) {
  start("</think>\n\nyes");
  const std::pair<const char*, std::string> kRequests[] = {
      {kChat, R"({"messages":[{"role":"user","content":"hi"}],"n":2})"},
      {kCompletions, R"({"prompt":"p"})"},
      {"/v1/messages", R"({"max_tokens":5,"messages":[{"role":"user","content":"hi"}]})"},
      {"/v1/responses", R"({"input":"hi"})"}};
  std::vector<std::unique_ptr<RawClient>> clients;
  const auto stats = [&] { return parse_json(hear("GET", "/stats").body, "stats").value(); };
  size_t sequences = 0;
  for (const auto& [path, body] : kRequests) {
    clients.push_back(std::make_unique<RawClient>(server_->port()));
    clients.back()->send(post(path, body));
    sequences += clients.size() == 1 ? 2 : 1;
    EXPECT_TRUE(
        testing::soon([&] { return at(stats(), "requests").as_array().size() == sequences; }));
  }
  EXPECT_EQ(hear("GET", "/load").body, R"({"server_load":5})");
  std::vector<std::string> apis;
  const Json told = stats();
  for (const Json& row : at(told, "requests").as_array()) {
    apis.push_back(at(row, "api").as_string());
    EXPECT_GE(at(row, "seconds").as_double(), 0.0);
    EXPECT_LT(at(row, "seconds").as_double(), 3600.0);
    EXPECT_EQ(at(row, "generated_tokens").as_int(), 0);
  }
  EXPECT_EQ(apis,
            (std::vector<std::string>{"chat", "chat", "completions", "messages", "responses"}));
  gate_->open();
  for (const auto& client : clients)
    EXPECT_NE(client->read_until("usage").find(" 200 OK"), std::string::npos);
}

}  // namespace
}  // namespace nibble
