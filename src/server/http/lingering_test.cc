// Connections after their last answer: they take what the client still sends, but not for ever.
#include <gtest/gtest.h>

#include <thread>

#include "server/testing/listening_test.h"
#include "server/testing/test_client.h"

namespace nibble {
namespace {

using testing::get;
using testing::RawClient;
using testing::soon;

class Lingering : public testing::ListeningTest {
 protected:
  /// Answers with the path.
  void start(HttpLimits limits) {
    limits.header_wait = limits.write_wait = testing::kPatience;
    listen({.limits = limits}, [](const HttpRequest& request, const auto& exchange) {
      exchange->respond({.body = request.path});
    });
  }
  static std::string last(std::string_view path) { return get(path, "Connection: close\r\n"); }
};

/// A socket that is closed at once meets what still comes with a reset, which may take the answer
/// from a client that has not read it yet. The connection stays for 2 s, in a tenth of which this
/// client sends twenty times; on a machine that stands still it has a few tries.
TEST_F(Lingering, TakesWhatARefusedClientStillSends) {
  start({.body_bytes_max = 100});
  bool all = false;
  for (int tries = 0; tries < 20 && !all; ++tries) {
    RawClient client(server_->port());
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
    EXPECT_NE(client.read_all().find(" 413 "), std::string::npos);
    EXPECT_TRUE(client.closed());
    all = true;
    for (int piece = 0; piece < 20 && all; ++piece) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      all = client.send("xyz");
    }
  }
  EXPECT_TRUE(all);
}

TEST_F(Lingering, ThePlaceOfAClientThatStaysIsFreeAfterAWhile) {
  start({.connections_max = 1});
  RawClient stays(server_->port());
  stays.send(last("/stays"));
  EXPECT_NE(stays.read_all().find("/stays"), std::string::npos);
  EXPECT_TRUE(soon([&] {
    RawClient next(server_->port());
    next.send(last("/next"));
    return next.read_all().find("/next") != std::string::npos;
  }));
}

}  // namespace
}  // namespace nibble
