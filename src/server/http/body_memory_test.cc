// The memory that the bodies of all requests share: who would take more is refused at once, whether
// its length is known or not, what it took comes back, and no address takes all of it.
#include <gtest/gtest.h>

#include "server/http/http_server.h"
#include "server/testing/listening_test.h"
#include "server/testing/test_client.h"

namespace nibble {
namespace {

using testing::RawClient;

class BodyMemory : public testing::ListeningTest {
 protected:
  static constexpr size_t kBytes = 3000;

  /// A proxy is the peer of all: whom it names is counted, and nobody where it names none.
  void SetUp() override {
    HttpOptions options;
    options.trusted_proxies = {AddressRange::parse("127.0.0.1").value()};
    options.limits.body_bytes_max = 2000;
    options.limits.bodies_bytes_max = kBytes;
    listen(std::move(options), [this](HttpRequest request, auto exchange) {
      if (request.path == "/held") {
        held_ = std::move(request);
        exchange_ = std::move(exchange);
      } else {
        exchange->respond({.body = "taken"});
      }
    });
  }

  static std::string head(std::string_view path, std::string_view length) {
    return concat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\n", length, "\r\n\r\n");
  }
  /// The answer to a whole request, from this address or through the proxy.
  std::string ask(size_t bytes, const char* from = "127.0.0.1",
                  const std::string& lines = "") const {
    RawClient client(server_->port(), from);
    client.send(head("/", concat(lines, "Connection: close\r\nContent-Length: ", bytes)) +
                std::string(bytes, 'x'));
    return client.read_all();
  }
  /// Asks until the memory that others gave back has arrived.
  bool soon_taken(size_t bytes, const char* from = "127.0.0.1") const {
    return testing::soon([&] { return ask(bytes, from).starts_with("HTTP/1.1 200"); });
  }

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
  EXPECT_NE(refused.find(R"("param":null,"code":"overloaded"})"), std::string::npos) << refused;
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

TEST_F(BodyMemory, OneAddressLeavesRoomForOthers) {
  // It may have one whole body, which is more than its quarter.
  const std::string silent = "Content-Length: 1500\r\nExpect: 100-continue";
  {
    RawClient first(server_->port(), "127.0.0.2");
    first.send(head("/", silent));
    EXPECT_NE(first.read_until("100 Continue").find("100 Continue"), std::string::npos);
    const std::string refused = ask(501, "127.0.0.2");
    EXPECT_TRUE(refused.starts_with("HTTP/1.1 429")) << refused;
    EXPECT_NE(refused.find("those of one address more than 2000"), std::string::npos) << refused;
    EXPECT_TRUE(ask(501, "127.0.0.3").starts_with("HTTP/1.1 200"));
    // A proxy's client is the address that the proxy names; others can write what they like.
    const std::string named = "X-Forwarded-For: 127.0.0.2\r\n";
    EXPECT_TRUE(ask(501, "127.0.0.1", named).starts_with("HTTP/1.1 429"));
    EXPECT_TRUE(ask(501, "127.0.0.3", named).starts_with("HTTP/1.1 200"));
    // A proxy may add a line of its own below one that its client made up.
    const std::string made_up = "X-Forwarded-For: 127.0.0.9\r\n";
    EXPECT_TRUE(ask(501, "127.0.0.1", made_up + named).starts_with("HTTP/1.1 429"));
    EXPECT_TRUE(ask(501, "127.0.0.1", named + made_up).starts_with("HTTP/1.1 200"));
    EXPECT_TRUE(ask(500, "127.0.0.2").starts_with("HTTP/1.1 200"));
  }
  EXPECT_TRUE(soon_taken(2000, "127.0.0.2"));
}

TEST_F(BodyMemory, AnAddressIsCountedAsLongAsItsBodiesAreHeld) {
  {
    RawClient gone(server_->port(), "127.0.0.2");
    gone.send(head("/held", "Content-Length: 1500") + std::string(1500, 'x'));
    for (bool there = false; !there;)
      testing::run_on(*server_, [&] { there = !held_.body.empty(); });
  }
  EXPECT_TRUE(ask(501, "127.0.0.2").starts_with("HTTP/1.1 429"));
  testing::run_on(*server_, [this] { held_ = {}; });
  EXPECT_TRUE(soon_taken(2000, "127.0.0.2"));
}

}  // namespace
}  // namespace nibble
