// A card that fails under running requests: each gets the error, the server ends and says why.
#include <gtest/gtest.h>

#include "server/test_server.h"

namespace nibble {
namespace {

using testing::kChat;
using testing::post;

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

}  // namespace
}  // namespace nibble
