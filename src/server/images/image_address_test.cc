// Addresses of images: how they are read, which hosts and which networks they may be of.
#include "server/images/image_address.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(ImageAddress, PartsAreThoseThatAreFetched) {
  struct Row {
    const char* url;
    const char* whole;
    const char* host;
    int port;
  };
  constexpr Row kRows[] = {
      {"https://Example.ORG/a.png?x=1#y", "https://Example.ORG/a.png?x=1", "example.org", 443},
      {"HTTPS://example.org.:8443/", "https://example.org.:8443/", "example.org", 8443},
      {"http://127.0.0.1/a", "http://127.0.0.1/a", "127.0.0.1", 80},
      {"https://[2606:4700::1]/a", "https://[2606:4700::1]/a", "2606:4700::1", 443}};
  for (const Row& row : kRows) {
    const auto address = parse_image_address(row.url);
    ASSERT_TRUE(address.ok()) << row.url << ": " << address.error().message;
    EXPECT_EQ(address.value().url, row.whole);
    EXPECT_EQ(address.value().host, row.host);
    EXPECT_EQ(address.value().port, row.port);
    EXPECT_EQ(address.value().secure, row.url[4] == 's' || row.url[4] == 'S');
  }
}

TEST(ImageAddress, OtherFormsAreRefused) {
  for (const std::string& url :
       {std::string("ftp://example.org/a"), std::string("file:///etc/passwd"),
        std::string("https://user@example.org/"), std::string("https://user:word@example.org/"),
        std::string("https://"), std::string("example.org/a"), std::string("https://exa mple.org/"),
        std::string("https://a:0x50/"), std::string("https://a:99999/"), std::string("gopher://a"),
        std::string(), "https://a/" + std::string(9000, 'x')}) {
    const auto address = parse_image_address(url);
    ASSERT_FALSE(address.ok()) << url.substr(0, 50);
    EXPECT_EQ(address.error().code, ErrorCode::invalid_argument);
  }
}

TEST(ImageAddress, TwoReadingsOfOneTextDoNotExist) {
  // Others take the host of these to be example.org.
  for (const char* url : {"https://evil.test\\@example.org/", "https://evil.test#@example.org/",
                          "https://evil.test/@example.org", "https://example.org@evil.test/"}) {
    const auto address = parse_image_address(url);
    EXPECT_NE(address.ok() ? address.value().host : "", "example.org") << url;
  }
}

TEST(ImageAddress, RedirectsAreReadFromWhereTheyCome) {
  const ImageAddress base = parse_image_address("https://example.org/a/b.png").value();
  EXPECT_EQ(redirected(base, "c.png").value().url, "https://example.org/a/c.png");
  EXPECT_EQ(redirected(base, "//other.test/c").value().host, "other.test");
  EXPECT_FALSE(redirected(base, "http://other.test/c").value().secure);
  EXPECT_FALSE(redirected(base, "file:///etc/passwd").ok());
  EXPECT_FALSE(redirected(base, "https://user@other.test/").ok());
  EXPECT_FALSE(redirected(base, "https://a:99999/").ok());
  const auto path_of = [](size_t bytes) { return "/" + std::string(bytes - 1, 'x'); };
  EXPECT_TRUE(redirected(base, path_of(8192)).ok());
  EXPECT_FALSE(redirected(base, path_of(8193)).ok());
}

TEST(PublicAddresses, NetworksThatAreNot) {
  for (const char* address : {"0.0.0.0",
                              "10.1.2.3",
                              "100.64.0.1",
                              "127.0.0.1",
                              "127.9.9.9",
                              "169.254.169.254",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.0.0.1",
                              "192.168.1.1",
                              "198.18.0.1",
                              "198.19.255.255",
                              "203.0.113.9",
                              "224.0.0.1",
                              "240.0.0.1",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "fe80::1",
                              "fe80::1%eth0",
                              "fc00::1",
                              "fd12:3456::1",
                              "ff02::1",
                              "::ffff:127.0.0.1",
                              "::ffff:8.8.8.8",
                              "::ffff:0a00:0001",
                              "::127.0.0.1",
                              "64:ff9b::7f00:1",
                              "2001::1",
                              "2001:db8::1",
                              "2002:7f00:1::",
                              "3fff::1",
                              "100::1",
                              "localhost",
                              "",
                              "1.2.3",
                              "0x7f.1",
                              "8.8.8.8 "})
    EXPECT_FALSE(is_public_address(address)) << address;
  for (const char* address : {"8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.1", "100.63.0.1",
                              "100.128.0.1", "9.255.255.255", "11.0.0.0", "223.255.255.255",
                              "2606:4700:4700::1111", "2a00:1450::1", "2001:200::1"})
    EXPECT_TRUE(is_public_address(address)) << address;
}

TEST(ImageHosts, NamesSubdomainsAndPorts) {
  const ImageHosts hosts = ImageHosts::parse({"Example.org", "*.cdn.test", "other.test:8443"},
                                             ImageHosts::Plain::refused)
                               .value();
  const auto taken = [&](const char* url) {
    return hosts.check(parse_image_address(url).value()).ok();
  };
  for (const char* url :
       {"https://example.org/", "https://EXAMPLE.org./a", "https://a.cdn.test/",
        "https://a.b.cdn.test/", "https://other.test:8443/", "https://example.org:443/"})
    EXPECT_TRUE(taken(url)) << url;
  for (const char* url :
       {"https://sub.example.org/", "https://example.org.evil.test/", "https://notexample.org/",
        "https://cdn.test/", "https://evilcdn.test/", "https://other.test/",
        "https://example.org:8443/", "http://example.org/", "http://a.cdn.test/"})
    EXPECT_FALSE(taken(url)) << url;
  const ImageHosts plain = ImageHosts::parse({"example.org"}, ImageHosts::Plain::taken).value();
  EXPECT_TRUE(plain.check(parse_image_address("http://example.org/").value()).ok());
  EXPECT_FALSE(plain.check(parse_image_address("http://example.org:443/").value()).ok());
  for (const char* wrong :
       {"", "*", "*.", "https://example.org", "a/b", "a:0", "a:b", "a:70000", "a:", "a b"})
    EXPECT_FALSE(ImageHosts::parse({wrong}, ImageHosts::Plain::refused).ok()) << wrong;
}

}  // namespace
}  // namespace nibble
