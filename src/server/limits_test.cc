// A client that exceeds a bound costs the others nothing. The bounds themselves are tested with
// their flags, in src/cli.
#include <gtest/gtest.h>

#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::post;
using testing::RawClient;

class LimitsServerTest : public testing::ServerTest {};

TEST_F(LimitsServerTest, ConnectionsOfOneAddress) {
  ServerOptions options;
  options.http.limits.connections_per_address_max = 2;
  start("x", options);
  RawClient one(server_->port());
  RawClient two(server_->port());
  EXPECT_EQ(ask(one, testing::get("/health")).first, 200);
  EXPECT_EQ(ask(two, testing::get("/health")).first, 200);
  RawClient three(server_->port());
  const std::string refused = three.read_all();
  EXPECT_NE(refused.find("at most 2 (--max-connections-per-address)"), std::string::npos)
      << refused;
  one.close();
  EXPECT_TRUE(testing::soon([&] { return ask(testing::get("/health")).first == 200; }));
}

TEST_F(LimitsServerTest, AReaderThatStopsLosesItsRequestAndHoldsUpNobody) {
  ServerOptions options;
  options.http.limits.output_bytes_max = 1024;
  // About twice the 4 MB that the kernel holds for a socket at most.
  start_script(testing::script_of(std::string(3000, 'x')), options, std::chrono::milliseconds(1));
  RawClient stopped(server_->port());
  stopped.receive_at_most(1024);
  // Each event repeats the model's name: much output of few tokens.
  const std::string stream = R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"n":8,)"
                             R"("logprobs":true,"top_logprobs":20})";
  stopped.send(post(testing::kChat, stream));
  RawClient other(server_->port());
  other.send(post(testing::kCompletions, R"({"prompt":"p","max_tokens":20})"));
  // Its steps are those of eight sequences with many probabilities, and the request is dropped only
  // after megabytes of them: minutes on a busy machine. It ends by itself after 3000 steps.
  EXPECT_EQ(other.read_until("\r\n").substr(0, 12), "HTTP/1.1 200");
  wait_for_log("client gone");
  const std::string load = ask(testing::get("/load")).second;
  EXPECT_EQ(load, R"({"server_load":0})");  // its pages are back: the engine checks at each step
}

}  // namespace
}  // namespace nibble
