// A card that fails or hangs under running requests: each gets the error, probes say so, the server
// ends and says why.
#include <gtest/gtest.h>

#include "server/testing/test_server.h"
#include "testing/gate.h"

namespace nibble {
namespace {

using testing::Gate;
using testing::kChat;
using testing::post;
using testing::RawClient;

/// Computes seven passes.
class FailingBackend final : public testing::ScriptedBackend {
 public:
  using ScriptedBackend::ScriptedBackend;
  Residual embed(const Batch& batch) override {
    ++passes_;
    return ScriptedBackend::embed(batch);
  }
  Result<void> alive() const override {
    if (passes_ <= 7) return {};
    return make_error(ErrorCode::io, {.what = "card 0 failed"});
  }

 private:
  int passes_ = 0;
};

class LostDeviceTest : public testing::ServerTest {
 protected:
  std::unique_ptr<Backend> backend(std::vector<int32_t> script,
                                   std::chrono::milliseconds pass_time) const override {
    return std::make_unique<FailingBackend>(std::move(script), pass_time);
  }
};

TEST_F(LostDeviceTest, AStreamEndsWithTheErrorAndSoDoesTheServer) {
  start_script(testing::script_of("</think>a long answer"), {}, std::chrono::milliseconds(20));
  const std::vector<std::string> said =
      events(post(kChat, R"({"messages":[{"role":"user","content":"hi"}],"stream":true})"));
  ASSERT_GE(said.size(), 2U);
  EXPECT_NE(said.back().find("card 0 failed"), std::string::npos) << said.back();
  thread_.join();  // run() has returned, without a signal
  EXPECT_EQ(server_->failure().error().message, "card 0 failed");
  server_.reset();
}

TEST_F(LostDeviceTest, AnAnswerInOnePieceIsAnError) {
  start("</think>a long answer");
  const auto [status, body] = ask(post(kChat, R"({"messages":[{"role":"user","content":"hi"}]})"));
  EXPECT_EQ(status, 500);
  EXPECT_NE(body.find("card 0 failed"), std::string::npos) << body;
}

/// Its seventh pass stands at a gate.
class HangingBackend final : public testing::ScriptedBackend {
 public:
  HangingBackend(std::vector<int32_t> script, std::shared_ptr<Gate> gate)
      : ScriptedBackend(std::move(script)), gate_(std::move(gate)) {}
  Residual embed(const Batch& batch) override {
    if (++passes_ == 7) gate_->pass();
    return ScriptedBackend::embed(batch);
  }

 private:
  std::shared_ptr<Gate> gate_;
  int passes_ = 0;
};

/// An answer by another way than a socket.
class Heard final : public HttpExchange {
 public:
  explicit Heard(std::function<void(const HttpResponse&)> hear) : hear_(std::move(hear)) {}
  void respond(HttpResponse response) override { hear_(response); }
  void start_stream(HttpResponse) override {}
  void write(std::string) override {}
  void finish_stream() override {}
  void on_gone(std::function<void()>) override {}

 private:
  std::function<void(const HttpResponse&)> hear_;
};

class HangingDeviceTest : public testing::ServerTest {
 protected:
  std::unique_ptr<Backend> backend(std::vector<int32_t> script,
                                   std::chrono::milliseconds) const override {
    return std::make_unique<HangingBackend>(std::move(script), gate_);
  }
  void start_with(std::chrono::milliseconds deadline) {
    ServerOptions options;
    options.step_deadline = deadline;
    start("</think>a long answer", std::move(options));
  }
  void hear(const std::string& path, std::function<void(const HttpResponse&)> hear) {
    server_->submit({.method = "GET", .path = path}, std::make_shared<Heard>(std::move(hear)));
  }
  void TearDown() override {
    testing::ServerTest::TearDown();
    Gate::dismiss(gate_);
  }
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
};

constexpr const char* kStream = R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";

/// The server's thread is held until the deadline has passed, so that what it is asked then comes
/// before what it does about it.
TEST_F(HangingDeviceTest, ProbesTellThenTheStreamEndsWithTheErrorAndSoDoesTheServer) {
  start_with(std::chrono::milliseconds(1500));
  RawClient client(server_->port());
  client.send(post(kChat, kStream));
  gate_->wait_for_one();
  Gate noticed;
  std::vector<std::pair<int, std::string>> told;
  const auto note = [&](const HttpResponse& said) { told.emplace_back(said.status, said.body); };
  hear("/live", note);
  hear("/version", [&](const HttpResponse&) { noticed.pass(); });
  for (const char* path : {"/live", "/ready", "/health"}) hear(path, note);
  while (server_->failure().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  noticed.open();
  const std::string said = client.read_all();
  EXPECT_NE(said.find("a pass of the scripted backend has not ended"), std::string::npos) << said;
  thread_.join();  // run() has returned, without a signal
  ASSERT_EQ(told.size(), 4U);
  EXPECT_EQ(told[0].first, 200);
  for (size_t i = 1; i < told.size(); ++i) {
    EXPECT_EQ(told[i].first, 503);
    EXPECT_EQ(told[i].second, R"({"status":"failed"})");
  }
  server_.reset();
}

/// Signals come while the pass hangs, before its deadline: the server ends no later than that.
TEST_F(HangingDeviceTest, SignalsDoNotWaitForIt) {
  start_with(std::chrono::milliseconds(1000));
  RawClient client(server_->port());
  client.send(post(kChat, kStream));
  gate_->wait_for_one();
  server_->terminate();
  server_->terminate();
  thread_.join();
  EXPECT_FALSE(server_->failure().ok());
  server_.reset();
}

}  // namespace
}  // namespace nibble
