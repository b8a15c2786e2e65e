// Texts that each format of a string takes, and some that it does not.
#include <gtest/gtest.h>

#include "grammar/language.h"
#include "grammar/pattern_reader.h"

namespace nibble {
namespace {

TEST(StringFormats, TakeTheirTextsAndNoOthers) {
  const char* const kV4 = "12345678-1234-4abc-9abc-1234567890ab";
  const char* const kV1 = "12345678-1234-1abc-9abc-1234567890ab";
  const struct {
    std::vector<const char*> formats;
    std::vector<const char*> taken;
    std::vector<const char*> refused;
  } kFormats[] = {
      {{"date"}, {"2024-02-29", "1999-12-31"}, {"2024-13-01", "2024-00-10", "2024-1-1", ""}},
      {{"time"}, {"12:30:00Z", "23:59:59+01:00"}, {"24:00:00Z", "12:60:00Z", "12:30"}},
      {{"date-time"}, {"2024-02-29T12:30:00Z"}, {"2024-02-29", "12:30:00Z"}},
      {{"duration"}, {"P1D", "PT5M", "P3W"}, {"P", "1D", "PT"}},
      {{"ipv4", "ipvanyaddress"}, {"0.0.0.0", "255.1.20.3"}, {"256.1.1.1", "1.1.1", "1.1.1.1.1"}},
      {{"ipv6", "ipvanyaddress"}, {"::", "::1", "2001:db8::1"}, {"1::2::3", "g::", ":1:"}},
      {{"uuid", "uuid4"}, {kV4}, {"12345678", "12345678-1234-4abc-9abc-1234567890ag"}},
      {{"uuid1"}, {kV1}, {kV4}},
      {{"uuid3"}, {"12345678-1234-3abc-9abc-1234567890ab"}, {kV1, kV4}},
      {{"uuid5"}, {"12345678-1234-5abc-babc-1234567890ab"}, {kV1, kV4}},
      {{"uuid4"}, {kV4}, {kV1, "12345678-1234-4abc-cabc-1234567890ab"}},
      {{"email", "idn-email"}, {"a.b@c.example"}, {"a", "@c", "a..b@c", ".a@c"}},
      {{"hostname"}, {"a.example", "a-b"}, {"-a", "a..b", ""}},
      {{"idn-hostname"}, {"a.example"}, {"-a", "a..b", ""}},
      {{"uri", "iri", "url"}, {"http://a.example/b?c#d", "urn:a"}, {"/a", "", "a b:c"}},
      {{"uri-reference", "iri-reference"}, {"/a", "../b?c", "http://a"}, {"a b", "\\"}},
      {{"uri-template"}, {"/a/{b}", "c"}, {"{", "/a/{b"}},
      {{"json-pointer"}, {"", "/a/0", "/a~1b~0"}, {"a", "/~2", "/~"}},
      {{"relative-json-pointer"}, {"0", "1#", "12/a"}, {"", "01", "#", "/a"}},
      {{"base64", "byte"}, {"", "QUJD", "QUI=", "QQ==", "a+/b"}, {"Q", "QUJ", "Q===", "a-_b"}},
      {{"base64url"}, {"", "QUJD", "QUI=", "QQ==", "a-_b"}, {"Q", "QUJ", "Q===", "a+/b"}},
      {{"binary", "password", "path", "file-path", "directory-path"}, {"", "a b", "\n\"{"}, {}},
  };
  for (const auto& row : kFormats)
    for (const char* format : row.formats) {
      const Pattern pattern = format_pattern(format).value();
      ASSERT_TRUE(pattern) << format;
      const Language language = Language::of(pattern).value();
      for (const char* text : row.taken) EXPECT_TRUE(language.accepts(text)) << format << text;
      for (const char* text : row.refused) EXPECT_FALSE(language.accepts(text)) << format << text;
    }
  EXPECT_FALSE(format_pattern("colour").value());
}

}  // namespace
}  // namespace nibble
