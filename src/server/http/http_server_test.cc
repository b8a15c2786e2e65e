// The transport against a raw socket: what is malformed, too large, too slow or gone.
#include "server/http/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "server/testing/listening_test.h"
#include "server/testing/test_client.h"

namespace nibble {
namespace {

using testing::get;
using testing::post;
using testing::RawClient;
using testing::soon;

struct BadRequest {
  const char* name;
  std::string bytes;
  int status;
};

class HttpServerTest : public testing::ListeningTest {
 protected:
  void start(HttpLimits limits, HttpHandler handler) {
    listen({.limits = limits}, std::move(handler));
  }
  /// Answers with "METHOD PATH BODY".
  static void echo(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    exchange->respond({.content_type = "text/plain",
                       .body = concat(request.method, " ", request.path, " ", request.body)});
  }
  static HttpLimits small() {
    return {.header_bytes_max = 1024,
            .header_lines_max = 10,
            .body_bytes_max = 100,
            .connections_max = 8,
            .output_bytes_max = 1 << 20,
            .header_wait = testing::kPatience,
            .body_wait = testing::kPatience,
            .idle_wait = testing::kPatience,
            .write_wait = testing::kPatience};
  }
  static HttpLimits impatient() {
    HttpLimits limits = small();
    limits.header_wait = limits.body_wait = limits.idle_wait = limits.write_wait =
        std::chrono::milliseconds(300);
    return limits;
  }
  uint16_t port() const { return server_->port(); }
  /// All that is said to who sends this, up to the end of the connection.
  std::string told(std::string_view bytes) const {
    RawClient client(port());
    client.send(bytes);
    std::string answer = client.read_all();
    EXPECT_TRUE(client.closed()) << bytes;
    return answer;
  }
  static void expect_refusal(const BadRequest& c, const std::string& answer) {
    EXPECT_TRUE(answer.starts_with(concat("HTTP/1.1 ", c.status, " "))) << c.name << ": " << answer;
    EXPECT_NE(answer.find("{\"error\":{\"message\":"), std::string::npos) << c.name;
    EXPECT_NE(answer.find("Connection: close"), std::string::npos) << c.name;
    const std::map<int, std::string_view> kCodes = {
        {400, "invalid_http_request"},     {408, "request_timeout"},
        {413, "request_too_large"},        {415, "unsupported_content_encoding"},
        {431, "request_header_too_large"}, {501, "unsupported_transfer_encoding"}};
    EXPECT_TRUE(
        answer.ends_with(concat(",\"param\":null,\"code\":\"", kCodes.at(c.status), "\"}}")))
        << c.name << ": " << answer;
    const char* type = c.status == 413 ? "request_too_large" : "invalid_request_error";
    EXPECT_NE(answer.find(concat("\"type\":\"", type, "\"")), std::string::npos) << answer;
  }
  /// Runs on the server's thread and waits.
  void on_server(const std::function<void()>& task) { testing::run_on(*server_, task); }
};

TEST_F(HttpServerTest, RefusesBadRequests) {
  start(small(), echo);
  const std::string host = "Host: x\r\n";
  const BadRequest cases[] = {
      {"not HTTP", "hello\r\n\r\n", 400},
      {"TLS", std::string("\x16\x03\x01\x02\x00\x01\x00", 7) + "\r\n\r\n", 400},
      {"no host", "GET / HTTP/1.1\r\n\r\n", 400},
      {"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"bad version", "GET / HTTP/9.9\r\n" + host + "\r\n", 400},
      {"target of another scheme", "GET ftp://a/ HTTP/1.1\r\n" + host + "\r\n", 400},
      {"target without a host", "GET http:///a HTTP/1.1\r\n" + host + "\r\n", 400},
      {"target with a user", "GET http://u@a/ HTTP/1.1\r\n" + host + "\r\n", 400},
      {"target of a proxy", "CONNECT a:1 HTTP/1.1\r\n" + host + "\r\n", 400},
      {"space in header name", "GET / HTTP/1.1\r\n" + host + "a b: c\r\n\r\n", 400},
      {"bare line feed", "GET / HTTP/1.1\n" + host + "\n", 400},
      {"huge header", "GET / HTTP/1.1\r\n" + host + "a: " + std::string(2000, 'x') + "\r\n\r\n",
       431},
      {"many headers",
       "GET / HTTP/1.1\r\n" + host +
           "a:1\r\na:1\r\na:1\r\na:1\r\na:1\r\na:1\r\na:1\r\na:1\r\na:1\r\n"
           "a:1\r\n\r\n",
       431},
      {"body too large by length", post("/", std::string(101, 'x')), 413},
      {"body too large by chunks",
       "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n65\r\n" +
           std::string(101, 'x') + "\r\n0\r\n\r\n",
       413},
      {"negative length", "POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400},
      {"two lengths",
       "POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
      {"length and chunks",
       "POST / HTTP/1.1\r\n" + host +
           "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       400},
      {"chunks and length",
       "POST / HTTP/1.1\r\n" + host +
           "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
       400},
      {"unknown transfer encoding",
       "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {"compressed chunks",
       "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"chunks of chunks",
       "POST / HTTP/1.1\r\n" + host +
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       400},
      {"bad chunk size", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
       400},
      {"compressed body",
       "POST / HTTP/1.1\r\n" + host + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", 415},
  };
  for (const BadRequest& c : cases) expect_refusal(c, told(c.bytes));
  RawClient alive(port());  // the server has survived
  alive.send(get("/still"));
  EXPECT_NE(alive.read_until("GET /still ").find("200 OK"), std::string::npos);
}

/// A connection that has sent nothing by then gets no answer, as that of a test that stood still.
TEST_F(HttpServerTest, RefusesWhoIsTooSlow) {
  start(impatient(), echo);
  const BadRequest cases[] = {
      {"slow header", "GET / HTTP/1.1\r\nHo", 408},
      {"slow body", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc", 408},
  };
  for (const BadRequest& c : cases) {
    std::string answer = told(c.bytes);
    for (int tries = 1; tries < 20 && answer.empty(); ++tries) answer = told(c.bytes);
    expect_refusal(c, answer);
  }
}

TEST_F(HttpServerTest, AcceptsWhatIsJustWithinTheLimits) {
  start(small(), echo);
  RawClient client(port());
  client.send(post("/a?b=c", std::string(100, 'x')));
  EXPECT_NE(client.read_until(std::string(100, 'x')).find("POST /a "), std::string::npos);
  client.send("POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  client.send("2;ext=1\r\nde\r\n0\r\n\r\n");
  EXPECT_NE(client.read_until("abcde").find("POST /b abcde"), std::string::npos);
}

TEST_F(HttpServerTest, KeepsConnectionsAliveAndTakesPipelinedRequests) {
  start(small(), echo);
  RawClient client(port());
  client.send(get("/1") + get("/2") + get("/3"));
  const std::string answers = client.read_until("GET /3 ");
  EXPECT_LT(answers.find("GET /1 "), answers.find("GET /2 "));
  EXPECT_LT(answers.find("GET /2 "), answers.find("GET /3 "));
  for (const char c : get("/slow")) client.send(std::string(1, c));
  EXPECT_NE(client.read_until("GET /slow ").find("200"), std::string::npos);
  client.send(get("/last", "Connection: close\r\n"));
  EXPECT_NE(client.read_all().find("Connection: close"), std::string::npos);
  EXPECT_TRUE(client.closed());
}

TEST_F(HttpServerTest, ClosesIdleConnections) {
  start(impatient(), echo);
  RawClient silent(port());
  EXPECT_EQ(silent.read_all(), "");
  EXPECT_TRUE(silent.closed());
}

TEST_F(HttpServerTest, AnswersHeadAndOldClients) {
  start(small(), echo);
  RawClient head(port());
  head.send("HEAD /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string answer = head.read_all();
  EXPECT_NE(answer.find("Content-Length: 8"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
  RawClient old(port());
  old.send("GET /old HTTP/1.0\r\n\r\n");
  EXPECT_NE(old.read_all().find("GET /old"), std::string::npos);
  EXPECT_TRUE(old.closed());
}

TEST_F(HttpServerTest, SendsContinueWhenAsked) {
  start(small(), echo);
  RawClient client(port());
  client.send("POST /c HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_TRUE(client.read_until("100 Continue").starts_with("HTTP/1.1 100"));
  client.send("ok");
  EXPECT_NE(client.read_until("POST /c ok").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, TurnsAwayTooManyConnections) {
  HttpLimits limits = small();
  limits.connections_max = 2;
  start(limits, echo);
  RawClient a(port());
  RawClient b(port());
  a.send(get("/a"));
  b.send(get("/b"));
  a.read_until("GET /a");
  b.read_until("GET /b");
  RawClient c(port());
  EXPECT_NE(c.read_all().find("503 Service Unavailable"), std::string::npos);
}

TEST_F(HttpServerTest, TakesTargetsThatAreWholeAddresses) {
  start(small(), [](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    exchange->respond({.body = concat(request.path, " at ", request.header("host"), ".")});
  });
  RawClient client(port());
  client.send("GET HTTP://a:80/b?c=/d HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.read_until("a:80.").find("/b at a:80."), std::string::npos);
  client.send("GET https://[::1]?c HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.read_until("].").find("/ at [::1]."), std::string::npos);
}

/// Who has sent all may close that direction and wait; who has left is noticed though nothing is
/// written to it.
TEST_F(HttpServerTest, AnswersWhoeverHasClosedItsHalf) {
  std::atomic<int> gone = 0;
  std::shared_ptr<HttpExchange> held;
  start(small(), [&](const HttpRequest&, std::shared_ptr<HttpExchange> exchange) {
    exchange->on_gone([&] { ++gone; });
    held = std::move(exchange);
  });
  const auto asked = [&](RawClient& client, std::string_view version, size_t count) {
    on_server([&] { held.reset(); });
    for (size_t i = 0; i < count; ++i)
      client.send(concat("GET / HTTP/", version, "\r\nHost: x\r\n\r\n"));
    client.end_sending();
    EXPECT_TRUE(soon([&] {
      bool has = false;
      on_server([&] { has = held != nullptr; });
      return has;
    }));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  {
    RawClient client(port());
    asked(client, "1.1", 2);
    on_server([&] { held->respond({.body = "first"}); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    on_server([&] { held->respond({.body = "second"}); });
    const std::string answer = client.read_all();
    EXPECT_NE(answer.find("first"), std::string::npos) << answer;
    EXPECT_NE(answer.find("second"), std::string::npos) << answer;
    EXPECT_TRUE(client.closed());
    EXPECT_EQ(gone, 0);
  }
  {
    RawClient client(port());
    asked(client, "1.1", 1);
    on_server([&] { held->start_stream({.body = "one"}); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    on_server([&] {
      held->write("two");
      held->finish_stream();
    });
    EXPECT_NE(client.read_all().find("3\r\none\r\n3\r\ntwo\r\n0\r\n"), std::string::npos);
    EXPECT_EQ(gone, 0);
  }
  {
    RawClient client(port());
    asked(client, "1.1", 1);
    EXPECT_EQ(gone, 0);
    client.close();
    EXPECT_TRUE(soon([&] { return gone > 0; }));
    EXPECT_EQ(gone, 1);
  }
  RawClient old(port());  // cannot be asked whether it waits
  asked(old, "1.0", 1);
  EXPECT_TRUE(soon([&] { return gone > 1; }));
}

TEST_F(HttpServerTest, StreamsInChunksAndTellsWhenTheClientLeaves) {
  std::atomic<int> gone = 0;
  std::shared_ptr<HttpExchange> held;
  std::atomic<bool> started = false;
  start(small(), [&](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
    exchange->start_stream({.content_type = "text/event-stream", .body = "one"});
    exchange->on_gone([&] { ++gone; });
    held = exchange;
    started = true;
  });
  auto client = std::make_unique<RawClient>(port());
  client->send(get("/"));
  EXPECT_NE(client->read_until("3\r\none\r\n").find("Transfer-Encoding: chunked"),
            std::string::npos);
  on_server([&] { held->write("twenty characters ok"); });
  EXPECT_EQ(client->read_until("ok\r\n"), "14\r\ntwenty characters ok\r\n");
  client.reset();
  EXPECT_TRUE(soon([&] {  // the next piece finds nobody
    on_server([&] { held->write("anybody?"); });
    return gone > 0;
  }));
  EXPECT_EQ(gone, 1);
  on_server([&] {
    held->write("to nobody");
    held->finish_stream();
    held.reset();
  });
}

/// An exchange whose answer has ended has no say in the next answer of its connection.
TEST_F(HttpServerTest, AnEndedExchangeSaysNothingIntoTheNextAnswer) {
  std::vector<std::shared_ptr<HttpExchange>> held;
  std::atomic<int> requests = 0;
  start(small(), [&](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
    held.push_back(std::move(exchange));
    ++requests;
  });
  RawClient client(port());
  client.send(get("/1"));
  while (requests < 1) std::this_thread::yield();
  on_server([&] { held[0]->respond({.content_type = "text/plain", .body = "first"}); });
  client.read_until("first");
  client.send(get("/2"));
  while (requests < 2) std::this_thread::yield();
  on_server([&] {
    held[0]->respond({.content_type = "text/plain", .body = "stale"});
    held[0]->start_stream({.content_type = "text/plain", .body = "stale"});
    held[0]->write("stale");
    held[0]->finish_stream();
    held[1]->respond({.content_type = "text/plain", .body = "second"});
  });
  const std::string answer = client.read_until("second");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
  EXPECT_EQ(answer.find("stale"), std::string::npos) << answer;
  EXPECT_EQ(answer.rfind("HTTP/1.1 "), 0U) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\nsecond")) << answer;
  on_server([&] { held.clear(); });
}

TEST_F(HttpServerTest, GivesUpOnReadersThatLetTooMuchGather) {
  std::atomic<int> gone = 0;
  std::shared_ptr<HttpExchange> held;
  start(small(), [&](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
    exchange->start_stream({.content_type = "text/event-stream"});
    exchange->on_gone([&] { ++gone; });
    held = exchange;
  });
  RawClient client(port());
  client.send(get("/"));
  client.read_until("\r\n\r\n");
  for (int i = 0; i < 400 && gone == 0; ++i)  // nobody reads
    on_server([&] { held->write(std::string(100'000, 'x')); });
  EXPECT_EQ(gone, 1);
  on_server([&] { held.reset(); });
}

TEST_F(HttpServerTest, GivesUpOnReadersThatStall) {
  std::atomic<int> gone = 0;
  HttpLimits limits = impatient();
  limits.output_bytes_max = size_t{256} << 20;
  start(limits, [&](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
    exchange->start_stream({.content_type = "text/event-stream"});
    exchange->on_gone([&] { ++gone; });
    exchange->write(std::string(size_t{32} << 20, 'x'));
  });
  RawClient client(port());
  client.send(get("/"));
  EXPECT_TRUE(soon([&] { return gone > 0; }));
  EXPECT_EQ(gone, 1);
}

TEST_F(HttpServerTest, FinishesAnswersAfterItStopsAccepting) {
  std::shared_ptr<HttpExchange> held;
  std::atomic<bool> has = false;
  start(small(), [&](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
    held = exchange;
    has = true;
  });
  const uint16_t at = port();
  RawClient client(at);
  client.send(get("/"));
  EXPECT_TRUE(soon([&] { return has.load(); }));
  std::atomic<size_t> busy = 0;
  on_server([&] {
    server_->stop_accepting();
    busy = server_->busy_connections();
    held->respond({.body = "done"});
    held.reset();
  });
  const std::string answer = client.read_all();
  EXPECT_NE(answer.find("done"), std::string::npos);
  EXPECT_EQ(busy, 1U);
  EXPECT_FALSE(RawClient(at).connected());
}

TEST(HttpServer, SaysWhyItCannotListen) {
  const auto handler = [](HttpRequest, std::shared_ptr<HttpExchange>) {};
  HttpOptions options{.host = "not-an-address", .port = 0};
  EXPECT_EQ(HttpServer::listen(options, handler).error().code, ErrorCode::invalid_argument);
  options.host = "127.0.0.1";
  const auto first = HttpServer::listen(options, handler).value();
  options.port = first->port();
  const auto second = HttpServer::listen(options, handler);
  EXPECT_EQ(second.error().code, ErrorCode::io);
  EXPECT_NE(second.error().message.find("--port"), std::string::npos);
}

}  // namespace
}  // namespace nibble
