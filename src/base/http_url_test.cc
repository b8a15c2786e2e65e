// URLs of plain HTTP, good and bad.
#include "base/http_url.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(HttpUrl, IsReadStrictly) {
  const struct {
    const char* url;
    const char* host;
    int port;
    const char* path;
  } good[] = {
      {"http://a", "a", 80, "/"},
      {"http://a/", "a", 80, "/"},
      {"http://127.0.0.1:8000/v1/x?y=1", "127.0.0.1", 8000, "/v1/x?y=1"},
      {"http://[::1]:9/p", "::1", 9, "/p"},
      {"http://[::1]", "::1", 80, "/"},
  };
  for (const auto& row : good) {
    const auto url = parse_http_url(row.url);
    ASSERT_TRUE(url.ok()) << row.url << ": " << url.error().message;
    EXPECT_EQ(url.value().host, row.host);
    EXPECT_EQ(url.value().port, row.port);
    EXPECT_EQ(url.value().path, row.path);
  }
  for (const char* bad :
       {"", "a", "ftp://a", "http://", "http:///x", "http://a:b", "http://a:70000",
        "http://a:", "http://u@a", "http://a b", "http://a/\r\nx: y"})
    EXPECT_EQ(parse_http_url(bad).error().code, ErrorCode::invalid_argument) << bad;
  EXPECT_EQ(parse_http_url("https://a").error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace nibble
