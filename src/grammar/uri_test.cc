// The examples of RFC 3986, 5.4, and those of its parts.
#include "grammar/uri.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

std::string resolved(std::string_view base, std::string_view reference) {
  const Uri uri = resolved_uri(resolved_uri({}, base), reference);
  return uri.fragment.empty() ? uri.document() : concat(uri.document(), "#", uri.fragment);
}

TEST(Uri, ResolvesTheExamplesOfTheRfc) {
  const std::pair<const char*, const char*> kExamples[] = {
      {"g:h", "g:h"},
      {"g", "http://a/b/c/g"},
      {"./g", "http://a/b/c/g"},
      {"g/", "http://a/b/c/g/"},
      {"/g", "http://a/g"},
      {"//g", "http://g"},
      {"?y", "http://a/b/c/d;p?y"},
      {"g?y", "http://a/b/c/g?y"},
      {"#s", "http://a/b/c/d;p?q#s"},
      {"g#s", "http://a/b/c/g#s"},
      {"g?y#s", "http://a/b/c/g?y#s"},
      {";x", "http://a/b/c/;x"},
      {"g;x", "http://a/b/c/g;x"},
      {"g;x?y#s", "http://a/b/c/g;x?y#s"},
      {"", "http://a/b/c/d;p?q"},
      {".", "http://a/b/c/"},
      {"./", "http://a/b/c/"},
      {"..", "http://a/b/"},
      {"../", "http://a/b/"},
      {"../g", "http://a/b/g"},
      {"../..", "http://a/"},
      {"../../", "http://a/"},
      {"../../g", "http://a/g"},
      {"../../../g", "http://a/g"},
      {"../../../../g", "http://a/g"},
      {"/./g", "http://a/g"},
      {"/../g", "http://a/g"},
      {"g.", "http://a/b/c/g."},
      {".g", "http://a/b/c/.g"},
      {"g..", "http://a/b/c/g.."},
      {"..g", "http://a/b/c/..g"},
      {"./../g", "http://a/b/g"},
      {"./g/.", "http://a/b/c/g/"},
      {"g/./h", "http://a/b/c/g/h"},
      {"g/../h", "http://a/b/c/h"},
      {"g;x=1/./y", "http://a/b/c/g;x=1/y"},
      {"g;x=1/../y", "http://a/b/c/y"},
      {"g?y/./x", "http://a/b/c/g?y/./x"},
      {"g?y/../x", "http://a/b/c/g?y/../x"},
      {"g#s/./x", "http://a/b/c/g#s/./x"},
      {"g#s/../x", "http://a/b/c/g#s/../x"},
      {"http:g", "http:g"},
  };
  for (const auto& [reference, uri] : kExamples)
    EXPECT_EQ(resolved("http://a/b/c/d;p?q", reference), uri) << reference;
}

TEST(Uri, ResolvesAgainstBasesOfFewParts) {
  const struct {
    const char* base;
    const char* reference;
    const char* uri;
  } cases[] = {
      {"", "a/../b", "/b"},
      {"", "../b", "b"},
      {"", "./b", "b"},
      {"", ".", ""},
      {"", "..", ""},
      {"http://a", "g", "http://a/g"},
      {"http://a?q", "#s", "http://a?q#s"},
      {"http://a?q", "g", "http://a/g"},
      {"urn:a:b", "#s", "urn:a:b#s"},
      {"urn:a", "b", "urn:b"},
      {"x/y", "z", "x/z"},
      {"x", "z", "z"},
      {"", "http://a/x/../y", "http://a/y"},
      {"http://h/p", "//g/x/../y?z", "http://g/y?z"},
      {"http://h/p", ":x", "http://h/:x"},
      {"http://h/p", "a/b:c", "http://h/a/b:c"},
      {"http://h/p", "?a:b", "http://h/p?a:b"},
  };
  for (const auto& [base, reference, uri] : cases)
    EXPECT_EQ(resolved(base, reference), uri) << base << " and " << reference;
}

TEST(Uri, ItsPartsKeepTheirSigns) {
  const Uri uri = resolved_uri({}, "s://h:1/p?q#f?#");
  EXPECT_EQ(uri.scheme, "s:");
  EXPECT_EQ(uri.authority, "//h:1");
  EXPECT_EQ(uri.path, "/p");
  EXPECT_EQ(uri.query, "?q");
  EXPECT_EQ(uri.fragment, "f?#");
}

}  // namespace
}  // namespace nibble
