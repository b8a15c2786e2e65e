// A stream that says nothing for a while is kept alive by pings, and not before.
#include <gtest/gtest.h>

#include <chrono>

#include "server/testing/gated_server.h"

namespace nibble {
namespace {

using testing::kCompletions;
using testing::post;
using testing::RawClient;

class SilentStreamTest : public testing::GatedServerTest {};

/// Until it has been silent for a whole period, a stream has no status yet and may be refused.
TEST_F(SilentStreamTest, IsKeptAliveOnceAPeriodHasPassed) {
  using Clock = std::chrono::steady_clock;
  ServerOptions options;
  options.ping_every = std::chrono::milliseconds(50);
  start("ab", options);
  RawClient client(server_->port());
  EXPECT_EQ(ask(client, testing::get("/health")).first, 200);
  std::this_thread::sleep_for(options.ping_every / 2);  // the period has begun, and is not over
  const auto asked = Clock::now();
  client.send(post(kCompletions, R"({"prompt":"p","max_tokens":2,"stream":true})"));
  std::string said = client.read_until(": ping\n\n");
  EXPECT_GE(Clock::now() - asked, options.ping_every) << said;
  EXPECT_EQ(said.find("data: "), std::string::npos) << said;
  gate_->open();
  said = client.read_until("data: [DONE]");
  EXPECT_NE(said.find("\"text\":\"a"), std::string::npos) << said;
}

}  // namespace
}  // namespace nibble
