// One request to a server that answers, refuses, or says nothing.
#include "server/http/http_client.h"

#include <gtest/gtest.h>

#include "server/testing/test_server.h"

namespace nibble {
namespace {

using namespace testing;

HttpUrl at_port(uint16_t port) { return {.host = "127.0.0.1", .port = port, .path = "/"}; }

TEST_F(ServerTest, ItsOwnClientIsAnswered) {
  start("yes");
  const HttpUrl url = at_port(server_->port());
  const auto models = http_send(url, {.method = "GET", .path = "/v1/models"});
  ASSERT_TRUE(models.ok()) << models.error().message;
  EXPECT_EQ(models.value().status, 200);
  EXPECT_EQ(models.value().content_type, "application/json");
  EXPECT_NE(models.value().body.find("\"tiny\""), std::string::npos);
  const auto posted = http_send(url, {.method = "POST",
                                      .path = kCompletions,
                                      .headers = {{"content-type", "application/json"}},
                                      .body = R"({"prompt":"x","max_tokens":1})"});
  ASSERT_TRUE(posted.ok()) << posted.error().message;
  EXPECT_EQ(posted.value().status, 200);
  EXPECT_EQ(http_send(url, {.method = "GET", .path = "/none"}).value().status, 404);
  const auto small = http_send(url, {.method = "GET", .path = "/v1/models"}, {.body_bytes_max = 9});
  EXPECT_EQ(small.error().code, ErrorCode::io);
}

TEST(HttpClient, GivesUp) {
  const int silent = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(silent, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(silent, 1), 0);
  ASSERT_EQ(::getsockname(silent, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const uint16_t port = ntohs(address.sin_port);
  const auto nothing = http_send(at_port(port), {.method = "GET", .path = "/"},
                                 {.wait = std::chrono::milliseconds(50)});
  EXPECT_EQ(nothing.error().code, ErrorCode::io);
  EXPECT_NE(nothing.error().message.find(concat("http://127.0.0.1:", port, " (")),
            std::string::npos);
  ::close(silent);
  EXPECT_EQ(http_send(at_port(port), {.method = "GET", .path = "/"}).error().code, ErrorCode::io);
}

}  // namespace
}  // namespace nibble
