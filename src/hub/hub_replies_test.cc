// Tables for the readers of what the hub says, and for the rules of names and addresses.
#include "hub/hub_replies.h"

#include <gtest/gtest.h>

#include "hub/url_origin.h"
#include "hub/hub_name.h"
#include "hub/hub_tree.h"

namespace nibble {
namespace {

constexpr std::string_view kCommit = "0123456789abcdef0123456789abcdef01234567";

TEST(HubReplies, Ranges) {
  const auto range = parse_content_range("bytes 5-9/10");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->begin, 5U);
  EXPECT_EQ(range->end, 10U);
  EXPECT_EQ(range->total, 10U);
  for (const char* wrong : {"", "bytes */10", "bytes 5-10/10", "bytes 9-5/10", "bytes -1-5/10",
                            "5-9/10", "bytes 5-9/*", "bytes 5-9", "bytes 0-0/99999999999999999999"})
    EXPECT_FALSE(parse_content_range(wrong)) << wrong;
}

TEST(HubReplies, Etags) {
  EXPECT_EQ(parse_etag("\"ab12\"").value(), "ab12");
  EXPECT_EQ(parse_etag("W/\"ab-1_2.x\"").value(), "ab-1_2.x");
  for (const char* wrong : {"", "\"\"", "\"a/b\"", "\"..\"", ".x", "a b", "a\\b"})
    EXPECT_EQ(parse_etag(wrong).ok(), false) << wrong;
  EXPECT_FALSE(parse_etag(std::string(129, 'a')).ok());
}

TEST(HubReplies, NextPages) {
  EXPECT_EQ(parse_next_link("<https://h/a?b=1>; rel=\"next\""), "https://h/a?b=1");
  EXPECT_EQ(parse_next_link("<x>; rel=\"last\", <y>; rel=next"), "y");
  for (const char* none : {"", "<x>; rel=\"prev\"", "<x", "x; rel=\"next\""})
    EXPECT_FALSE(parse_next_link(none)) << none;
}

TEST(HubReplies, SecondsToWait) {
  EXPECT_EQ(parse_retry_after("120"), 120);
  EXPECT_EQ(parse_retry_after(" 0 "), 0);
  for (const char* none : {"", "soon", "-1", "1.5", "Wed, 21 Oct 2015 07:28:00 GMT"})
    EXPECT_FALSE(parse_retry_after(none)) << none;
}

TEST(HubReplies, Revisions) {
  EXPECT_EQ(parse_revision_reply(concat("{\"sha\":\"", kCommit, "\"}")).value(), kCommit);
  for (const char* wrong : {"", "[]", "{}", "{\"sha\":1}", "{\"sha\":\"main\"}"})
    EXPECT_FALSE(parse_revision_reply(wrong).ok()) << wrong;
}

TEST(HubTree, TheFileOfTheCacheIsPythons) {
  const std::vector<HubFile> files = {
      {.path = "z\xC3\xBC \xF0\x9D\x84\x9E\x7F", .bytes = 3, .blob_id = "ab"},
      {.path = "a",
       .bytes = 1,
       .blob_id = "c",
       .lfs_sha256 = std::string(64, 'd'),
       .lfs_bytes = 7}};
  EXPECT_EQ(tree_file_text(files),
            concat("{\n \"format_version\": 1,\n \"files\": {\n  \"a\": {\n   \"size\": 1,\n"
                   "   \"blob_id\": \"c\",\n   \"lfs_sha256\": \"",
                   std::string(64, 'd'),
                   "\",\n   \"lfs_size\": 7\n  },\n  \"z\\u00fc \\ud834\\udd1e\\u007f\": {\n"
                   "   \"size\": 3,\n   \"blob_id\": \"ab\"\n  }\n }\n}"));
  EXPECT_EQ(tree_file_text({}), "{\n \"format_version\": 1,\n \"files\": {}\n}");
}

TEST(HubTree, PathsThatContradict) {
  EXPECT_TRUE(check_tree({{.path = "a/b"}, {.path = "a/c"}, {.path = "ab"}}).ok());
  EXPECT_FALSE(check_tree({{.path = "a"}, {.path = "a"}}).ok());
  EXPECT_FALSE(check_tree({{.path = "a/b/c"}, {.path = "a/b"}}).ok());
}

TEST(HubName, PathsOfFiles) {
  for (const char* fine : {"a", "a/b", ".gitattributes", "a b", "...", "\xC3\xBC/x"})
    EXPECT_TRUE(check_hub_path(fine).ok()) << fine;
  for (const std::string_view wrong :
       {"", "/", "/a", "a/", "a//b", "..", "a/..", "../a", ".", "a/./b", "a\\b", "a\nb"})
    EXPECT_FALSE(check_hub_path(wrong).ok()) << wrong;
  EXPECT_FALSE(check_hub_path(std::string_view("a\0b", 3)).ok());
  EXPECT_FALSE(check_hub_path(std::string(256, 'a')).ok());
  EXPECT_EQ(url_path("a b/\xC3\xBC+%?"), "a%20b/%C3%BC%2B%25%3F");
}

TEST(HubName, FoldersOfTheCache) {
  EXPECT_EQ(hub_folder_name("org/name"), "models--org--name");
  EXPECT_EQ(repository_of_folder("models--org--name"), "org/name");
  for (const char* none : {"datasets--org--name", "models--name", "models--a--b--c", ".locks", ""})
    EXPECT_FALSE(repository_of_folder(none)) << none;
}

TEST(HttpUrl, OriginsAndRedirects) {
  EXPECT_EQ(origin_of("HTTPS://Hub.Example/a?b").value(), "https://hub.example:443");
  EXPECT_EQ(origin_of("http://h:80/").value(), "http://h:80");
  for (const char* wrong : {"", "h", "ftp://h/", "https://", "https://user:pass@h/", "file:///etc"})
    EXPECT_FALSE(origin_of(wrong).ok()) << wrong;
  EXPECT_EQ(resolved_url("https://h/a/b", "/c?d").value(), "https://h/c?d");
  EXPECT_EQ(resolved_url("http://h/a", "https://o/x").value(), "https://o/x");
  for (const char* wrong : {"http://h/x", "http://o/", "file:///etc/passwd", "https://u:p@o/"})
    EXPECT_FALSE(resolved_url("https://h/a", wrong).ok()) << wrong;
}

}  // namespace
}  // namespace nibble
