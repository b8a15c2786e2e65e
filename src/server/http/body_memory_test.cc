// The memory that the bodies of all requests share: who would take more is refused at once, whether
// its length is known or not, and what it took comes back.
#include <gtest/gtest.h>

#include <thread>

#include "server/http/http_server.h"
#include "server/testing/test_client.h"

namespace nibble {
namespace {

using testing::RawClient;

class BodyMemory : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 3000;

  void SetUp() override {
    HttpOptions options{.port = 0};
    options.limits.body_bytes_max = 2000;
    options.limits.bodies_bytes_max = kBytes;
    server_ = HttpServer::listen(options, [this](HttpRequest request, auto exchange) {
                if (request.path == "/held") {
                  held_ = std::move(request);
                  exchange_ = std::move(exchange);
                } else {
                  exchange->respond({.body = "taken"});
                }
              }).value();
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override {
    server_->post([this] { server_->stop(); });
    thread_.join();
  }

  static std::string head(std::string_view path, std::string_view length) {
    return concat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\n", length, "\r\n\r\n");
  }
  /// The first line of the answer to a whole request.
  std::string ask(size_t bytes) const {
    RawClient client(server_->port());
    client.send(head("/", concat("Connection: close\r\nContent-Length: ", bytes)) +
                std::string(bytes, 'x'));
    return client.read_all();
  }
  /// Asks until the memory that others gave back has arrived.
  bool soon_taken(size_t bytes) const {
    for (int i = 0; i < 1000; ++i) {
      if (ask(bytes).starts_with("HTTP/1.1 200")) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  HttpRequest held_;
  std::shared_ptr<HttpExchange> exchange_;
};

TEST_F(BodyMemory, ALengthIsTakenBeforeItsBytesCome) {
  RawClient slow(server_->port());
  slow.send(head("/", "Content-Length: 2000\r\nExpect: 100-continue"));
  EXPECT_NE(slow.read_until("100 Continue").find("100 Continue"), std::string::npos);
  const std::string refused = ask(1001);
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 429")) << refused;
  EXPECT_NE(refused.find("more than 3000 bytes"), std::string::npos) << refused;
  EXPECT_NE(refused.find("\r\nRetry-After: 1\r\n"), std::string::npos) << refused;
  EXPECT_TRUE(ask(1000).starts_with("HTTP/1.1 200"));
  slow.send(std::string(2000, 'x'));
  EXPECT_NE(slow.read_until("taken").find("taken"), std::string::npos);
  EXPECT_TRUE(soon_taken(2000));
}

TEST_F(BodyMemory, ChunksTakeItAsTheyCome) {
  RawClient slow(server_->port());
  slow.send(head("/held", "Transfer-Encoding: chunked"));
  slow.send("5dc\r\n" + std::string(1500, 'x') + "\r\n0\r\n\r\n");
  for (bool there = false; !there;) testing::run_on(*server_, [&] { there = !held_.body.empty(); });
  EXPECT_TRUE(ask(1501).starts_with("HTTP/1.1 429"));
  EXPECT_TRUE(ask(1500).starts_with("HTTP/1.1 200"));
  testing::run_on(*server_, [this] {  // the request is its holder's to drop
    exchange_->respond({.body = "taken"});
    held_ = {};
  });
  EXPECT_TRUE(soon_taken(2000));
}

TEST_F(BodyMemory, WhoLeavesGivesItBack) {
  {
    RawClient gone(server_->port());
    gone.send(head("/", "Content-Length: 2000\r\nExpect: 100-continue"));
    gone.read_until("100 Continue");
    EXPECT_TRUE(ask(1001).starts_with("HTTP/1.1 429"));
  }
  EXPECT_TRUE(soon_taken(2000));
}

}  // namespace
}  // namespace nibble
