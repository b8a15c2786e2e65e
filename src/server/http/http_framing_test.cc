// The bytes around answers: status lines, headers, ends of bodies, for clients of either version.
#include <gtest/gtest.h>

#include <ctime>

#include "base/json.h"
#include "server/http/http_server.h"
#include "server/testing/listening_test.h"
#include "server/testing/test_client.h"

namespace nibble {
namespace {

using testing::get;
using testing::RawClient;

class HttpFraming : public testing::ListeningTest {
 protected:
  /// Answers with the path, under "/stream" in pieces.
  void start(HttpLimits limits = {}) {
    limits.header_wait = limits.body_wait = limits.idle_wait = limits.write_wait =
        testing::kPatience;
    listen({.limits = limits}, [](const HttpRequest& request, const auto& exchange) {
      if (!request.path.starts_with("/stream"))
        return exchange->respond({.content_type = "text/plain",
                                  .body = request.path,
                                  .headers = {{"X-One", "1"}, {"X-Two", "2"}}});
      exchange->start_stream({.content_type = "text/event-stream", .body = "first,"});
      exchange->write("");
      exchange->write(std::string(26, 'x'));
      exchange->finish_stream();
    });
  }
  /// An answer up to these words, without the line that has the date.
  static std::string answer(RawClient& client, const std::string& request, const std::string& end) {
    client.send(request);
    std::string text = client.read_until(end);
    const size_t date = text.find("\r\nDate: ");
    if (date != std::string::npos) text.erase(date, text.find("\r\n", date + 2) - date);
    return text;
  }
};

TEST_F(HttpFraming, AWholeAnswerHasItsLengthAndItsHeaders) {
  start();
  RawClient client(server_->port());
  EXPECT_EQ(answer(client, get("/path?query"), "/path"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-One: 1\r\nX-Two: 2\r\n"
            "Content-Length: 5\r\n\r\n/path");
}

TEST_F(HttpFraming, TheDateIsTheTimeOfTheAnswer) {
  start();
  RawClient client(server_->port());
  const auto now = [] { return std::time(nullptr); };
  const std::time_t begin = now();
  client.send(get("/x"));
  const std::string text = client.read_until("\r\n\r\n/x");
  const std::time_t end = now();
  const size_t at = text.find("\r\nDate: ");
  ASSERT_NE(at, std::string::npos) << text;
  std::tm fields = {};
  const char* rest = ::strptime(text.c_str() + at + 8, "%a, %d %b %Y %H:%M:%S GMT", &fields);
  ASSERT_NE(rest, nullptr) << text;
  EXPECT_TRUE(std::string_view(rest).starts_with("\r\n")) << text;
  const std::time_t said = ::timegm(&fields);
  EXPECT_GE(said, begin);
  EXPECT_LE(said, end);
}

TEST_F(HttpFraming, AStreamIsChunkedAndTheConnectionStays) {
  start();
  RawClient client(server_->port());
  const std::string stream =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
      "6\r\nfirst,\r\n1a\r\nxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n0\r\n\r\n";
  for (int round = 0; round < 2; ++round)
    EXPECT_EQ(answer(client, get("/stream"), "0\r\n\r\n"), stream);
}

TEST_F(HttpFraming, AnOldClientsStreamEndsWithItsConnection) {
  start();
  RawClient client(server_->port());
  EXPECT_EQ(answer(client, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", ""),
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
            "first,xxxxxxxxxxxxxxxxxxxxxxxxxx");
  EXPECT_TRUE(client.closed());
}

TEST_F(HttpFraming, AnOldClientMayKeepItsConnection) {
  start();
  RawClient client(server_->port());
  for (const char* path : {"/1", "/2"})
    EXPECT_EQ(
        answer(client, concat("GET ", path, " HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), path),
        concat("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-One: 1\r\nX-Two: 2\r\n"
               "Content-Length: 2\r\nConnection: keep-alive\r\n\r\n",
               path));
}

TEST_F(HttpFraming, AHeadHasNoBodyAndTheConnectionStays) {
  start();
  RawClient client(server_->port());
  client.send("HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  client.send("HEAD /abc HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string text = answer(client, get("/last"), "\r\n\r\n/last");
  EXPECT_EQ(text.find("first"), std::string::npos) << text;
  EXPECT_EQ(text.find("/abc"), std::string::npos) << text;
  EXPECT_NE(text.find("Content-Length: 4\r\n"), std::string::npos) << text;
}

TEST_F(HttpFraming, ARefusalIsAWholeAnswerAndTheLast) {
  start({.body_bytes_max = 10});
  RawClient client(server_->port());
  const std::string body =
      R"({"error":{"message":"the request body is larger than 10 bytes",)"
      R"("type":"request_too_large","param":null,"code":"request_too_large"}})";
  EXPECT_EQ(answer(client, testing::post("/", "12345678901"), ""),
            concat("HTTP/1.1 413 Payload Too Large\r\nContent-Type: application/json\r\n"
                   "Content-Length: ",
                   body.size(), "\r\nConnection: close\r\n\r\n", body));
}

TEST_F(HttpFraming, WhoIsTurnedAwayGetsAWholeAnswer) {
  start({.connections_max = 1});
  RawClient first(server_->port());
  EXPECT_NE(answer(first, get("/first"), "/first"), "");
  RawClient second(server_->port());
  const std::string text = second.read_all();
  const size_t head = text.find("\r\n\r\n");
  ASSERT_NE(head, std::string::npos) << text;
  EXPECT_EQ(text.substr(0, head),
            concat("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
                   "Retry-After: 1\r\nConnection: close\r\nContent-Length: ",
                   text.size() - head - 4));
  const auto body = parse_json(text.substr(head + 4), "the body");
  ASSERT_TRUE(body.ok()) << text;
  const Json& error = *body.value().find("error");
  EXPECT_EQ(*error.find("type"), Json("invalid_request_error"));
  EXPECT_EQ(*error.find("code"), Json("too_many_connections"));
}

/// The request line and the lines below it count, with their ends and the empty line.
TEST_F(HttpFraming, HeadersMayBeAsLongAsTheirLimit) {
  start({.header_bytes_max = 512, .header_lines_max = 3});
  const auto with_bytes = [](size_t bytes) {
    const std::string begin = "GET /x HTTP/1.1\r\nHost: x\r\na: ", end = "\r\n\r\n";
    return begin + std::string(bytes - begin.size() - end.size(), 'a') + end;
  };
  const auto status = [&](const std::string& request) {
    RawClient client(server_->port());
    client.send(request);
    return client.read_until("\r\n").substr(9, 3);
  };
  EXPECT_EQ(status(with_bytes(512)), "200");
  EXPECT_EQ(status(with_bytes(513)), "431");
  EXPECT_EQ(status("GET /x HTTP/1.1\r\nHost: x\r\na: 1\r\nb: 2\r\n\r\n"), "200");
  EXPECT_EQ(status("GET /x HTTP/1.1\r\nHost: x\r\na: 1\r\nb: 2\r\nc: 3\r\n\r\n"), "431");
}

/// A client that sends on and on after its last answer is cut off.
TEST_F(HttpFraming, WhatComesAfterTheLastAnswerIsReadUpToABound) {
  start({.body_bytes_max = 10});
  RawClient client(server_->port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n");
  EXPECT_NE(client.read_all().find(" 413 "), std::string::npos);
  const std::string piece(size_t{1} << 20, 'x');
  size_t pieces = 0;
  while (pieces < 1000 && client.send(piece)) ++pieces;
  EXPECT_LT(pieces, 200U);  // 64 of them, and what the kernel holds
}

}  // namespace
}  // namespace nibble
