// Tests who may ask by which name and from which site's page, and whom a request is from.
#include "server/http/site_rules.h"

#include <gtest/gtest.h>

#include "server/http/client_address.h"
#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::get;
using testing::kChat;
using testing::post;
using testing::RawClient;

TEST(ClientAddress, ReadsAddressesAndRanges) {
  struct Row {
    const char* range;
    const char* address;
    bool inside;
  };
  const Row kRows[] = {
      {"10.0.0.0/8", "10.255.1.2", true},
      {"10.0.0.0/8", "11.0.0.0", false},
      {"10.0.0.0/8", "::ffff:10.1.1.1", true},
      {"127.0.0.1", "127.0.0.1", true},
      {"127.0.0.1", "127.0.0.2", false},
      {"0.0.0.0/0", "1.2.3.4", true},
      {"0.0.0.0/0", "::1", false},
      {"2001:db8::/33", "2001:db8:7fff::1", true},
      {"2001:db8::/33", "2001:db8:8000::1", false},
      {"::1", "::1", true},
      {"10.0.0.0/31", "10.0.0.1", true},
      {"10.0.0.0/31", "10.0.0.2", false},
      {"10.0.0.0/8", "nonsense", false},
      {"10.0.0.0/8", "", false},
  };
  for (const Row& row : kRows) {
    const auto range = AddressRange::parse(row.range);
    ASSERT_TRUE(range.ok()) << row.range;
    EXPECT_EQ(is_trusted(row.address, std::span(&range.value(), 1)), row.inside)
        << row.range << " " << row.address;
  }
  for (const char* wrong : {"", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/8x",
                            "::/129", "10.0.0", "host", "10.0.0.0/8/8"}) {
    const auto range = AddressRange::parse(wrong);
    ASSERT_FALSE(range.ok()) << wrong;
    EXPECT_NE(range.error().message.find("such as 10.0.0.0/8"), std::string::npos);
  }
}

TEST(ClientAddress, GroupsAndProxies) {
  EXPECT_EQ(client_group("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(client_group("::ffff:10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(client_group("2001:db8:1:2:3::4"), "2001:db8:1:2::/64");
  EXPECT_EQ(client_group("2001:db8:1:2:ffff:1:2:3"), "2001:db8:1:2::/64");
  EXPECT_NE(client_group("2001:db8:1:3::4"), "2001:db8:1:2::/64");
  EXPECT_EQ(client_group("unknown"), "unknown");
  const std::vector<AddressRange> proxies = {AddressRange::parse("10.0.0.0/8").value(),
                                             AddressRange::parse("::1").value()};
  struct Row {
    const char* peer;
    const char* forwarded;
    const char* client;
  };
  const Row kRows[] = {
      {"192.0.2.1", "203.0.113.9", "192.0.2.1"},  // no proxy: what it says is its own invention
      {"10.0.0.1", "203.0.113.9", "203.0.113.9"},
      {"10.0.0.1", "203.0.113.9:4711", "203.0.113.9"},
      {"10.0.0.1", "[2001:db8::9]:4711", "2001:db8::9"},
      {"10.0.0.1", "evil, 203.0.113.9 ,10.9.9.9", "203.0.113.9"},
      {"10.0.0.1", "203.0.113.9, nonsense", "10.0.0.1"},
      {"10.0.0.1", "203.0.113.9, ,", "10.0.0.1"},
      {"10.0.0.1", "", "10.0.0.1"},
      {"10.0.0.1", "10.0.0.7", "10.0.0.7"},
      {"::1", "203.0.113.9", "203.0.113.9"},
      {"", "203.0.113.9", ""},
  };
  for (const Row& row : kRows)
    EXPECT_EQ(client_behind(row.peer, row.forwarded, proxies), row.client)
        << row.peer << " " << row.forwarded;
}

TEST(SiteRules, HostsAndOrigins) {
  using LocalNames = SiteRules::LocalNames;
  struct Row {
    const char* method;
    const char* host;
    const char* origin;
    const char* code;  // empty: let in
  };
  const auto check = [](const SiteRules& rules, std::span<const Row> rows, const char* client) {
    for (const Row& row : rows) {
      HttpRequest request{.method = row.method, .path = "/v1/models", .client = client};
      if (*row.host != 0) request.headers.push_back({"host", row.host});
      if (*row.origin != 0) request.headers.push_back({"origin", row.origin});
      const auto error = rules.refusal_of(request);
      EXPECT_EQ(error ? error->code : "", row.code)
          << row.method << " " << row.host << " " << row.origin;
      EXPECT_EQ(error ? error->status : 403, 403);
      EXPECT_EQ(error ? error->type : "permission_error", "permission_error");
      request.path = "/health";
      EXPECT_TRUE(std::string_view(row.method) != "GET" || !rules.refusal_of(request));
    }
  };
  const Row kLocal[] = {
      {"GET", "localhost", "", ""},
      {"GET", "LocalHost.:8000", "", ""},
      {"GET", "app.localhost:8000", "", ""},
      {"GET", "127.0.0.1:1", "", ""},
      {"GET", "127.8.8.8", "", ""},
      {"GET", "[::1]:8000", "", ""},
      {"GET", "", "", ""},  // HTTP/1.0, which no browser speaks
      {"GET", "evil.example:8000", "", "host_not_allowed"},
      {"GET", "localhost.evil.example", "", "host_not_allowed"},
      {"GET", "127.0.0.1.evil.example", "", "host_not_allowed"},
      {"GET", "192.168.0.7", "", "host_not_allowed"},
      {"GET", "[2001:db8::1]", "", "host_not_allowed"},
      {"GET", "nibble.lan:8000", "", ""},
      {"GET", "other.lan:8000", "", ""},
      {"GET", "other.lan:8001", "", "host_not_allowed"},
      {"GET", "localhost", "https://evil.example", ""},  // reads: CORS keeps the answer from it
      {"OPTIONS", "localhost", "https://evil.example", ""},
      {"POST", "localhost:8000", "", ""},
      {"POST", "localhost:8000", "http://localhost:8000", ""},
      {"POST", "LOCALHOST:80", "http://localhost", ""},
      {"POST", "localhost:443", "https://localhost", ""},
      {"POST", "localhost:8000", "http://localhost:3000", "origin_not_allowed"},
      {"POST", "localhost:8000", "http://127.0.0.1:8000", "origin_not_allowed"},
      {"POST", "localhost:8000", "null", "origin_not_allowed"},
      {"DELETE", "localhost:8000", "https://evil.example", "origin_not_allowed"},
      {"POST", "localhost:8000", "https://good.example", ""},
  };
  const SiteRules::Options lists{.hosts = {"nibble.lan", "Other.lan:8000"},
                                 .origins = {"https://good.example"}};
  check(SiteRules(lists, LocalNames::checked), kLocal, "127.0.0.1");
  const Row kOpen[] = {{"GET", "evil.example", "", ""},
                       {"POST", "evil.example", "http://evil.example", ""},
                       {"POST", "nibble.example", "http://evil.example", "origin_not_allowed"}};
  check(SiteRules({}, LocalNames::any), kOpen, "192.0.2.1");
  check(SiteRules({}, LocalNames::checked), kOpen, "");  // a Unix socket
  const Row kListed[] = {{"GET", "evil.example", "", "host_not_allowed"},
                         {"GET", "nibble.lan", "", ""}};
  check(SiteRules(lists, LocalNames::any), kListed, "192.0.2.1");
  const Row kAny[] = {{"POST", "evil.example", "null", ""}};
  check(SiteRules({.hosts = {"*"}, .origins = {"*"}}, LocalNames::checked), kAny, "127.0.0.1");
}

class SitesTest : public testing::ServerTest {};

constexpr const char* kHello = R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2})";

TEST_F(SitesTest, AKeylessServerOfThisMachineKnowsItsNames) {
  start("x");
  const std::string evil = "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n";
  const auto [status, body] = ask(evil);
  EXPECT_EQ(status, 403);
  EXPECT_NE(body.find("--allowed-hosts evil.example"), std::string::npos) << body;
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n").first, 200);
  EXPECT_EQ(ask("GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n").first,
            403);
  EXPECT_EQ(ask(post(kChat, kHello, "Origin: https://evil.example\r\n")).first, 403);
  EXPECT_EQ(ask(post(kChat, kHello, "Origin: http://localhost\r\n")).first, 200);
}

TEST_F(SitesTest, AServerWithKeysAnswersByAnyNameAndToNoForeignPage) {
  ServerOptions options;
  options.api_keys = {"sesame"};
  start("x", options);
  const std::string key = "Authorization: Bearer sesame\r\n";
  EXPECT_EQ(ask(concat("GET /v1/models HTTP/1.1\r\nHost: a.example\r\n", key, "\r\n")).first, 200);
  EXPECT_EQ(ask(post(kChat, kHello, concat(key, "Origin: https://evil.example\r\n"))).first, 403);
}

TEST_F(SitesTest, ConnectionsAreCountedByAddress) {
  ServerOptions options;
  options.http.limits.connections_per_address_max = 2;
  options.http.trusted_proxies = {AddressRange::parse("127.0.0.3").value()};
  start("x", options);
  const auto status = [&](RawClient& client) { return ask(client, get("/health")).first; };
  RawClient a(server_->port(), "127.0.0.1"), b(server_->port(), "127.0.0.1");
  EXPECT_EQ(status(a), 200);
  EXPECT_EQ(status(b), 200);
  RawClient c(server_->port(), "127.0.0.1"), d(server_->port(), "127.0.0.2");
  EXPECT_EQ(status(c), 503);
  EXPECT_EQ(status(d), 200);
  RawClient e(server_->port(), "127.0.0.3"), f(server_->port(), "127.0.0.3"),
      g(server_->port(), "127.0.0.3");
  for (RawClient* client : {&e, &f, &g}) EXPECT_EQ(status(*client), 200);
}

}  // namespace
}  // namespace nibble
