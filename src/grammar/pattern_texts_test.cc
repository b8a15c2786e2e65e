// Patterns and formats of JSON Schema as the text that xgrammar reads, whole.
#include <gtest/gtest.h>

#include "grammar/language.h"
#include "grammar/pattern_reader.h"
#include "testing/golden_text.h"

namespace nibble {
namespace {

std::string text_of(const Result<Pattern>& pattern) {
  if (!pattern.ok()) return concat("error: ", pattern.error().message);
  if (pattern.value() == nullptr) return "not known";
  return concat(regex_text(pattern.value(), Spelling::plain),
                "\n  in JSON: ", regex_text(pattern.value(), Spelling::json));
}

const char* const kPatterns[] = {"",
                                 "a",
                                 "^a",
                                 "a$",
                                 "^a$",
                                 "^a|b$",
                                 "^(a|b)$",
                                 "^a*$",
                                 "^a+$",
                                 "^a?$",
                                 "^a*?$",
                                 "^a+?$",
                                 "^a??$",
                                 "^a{2}$",
                                 "^a{2,}$",
                                 "^a{2,3}$",
                                 "^a{2,3}?$",
                                 "^a{0}$",
                                 "^a{3,2}$",
                                 "^a{,2}$",
                                 "^a{$",
                                 "^a}$",
                                 "^.$",
                                 "^[abc]$",
                                 "^[^abc]$",
                                 "^[a-c]$",
                                 "^[c-a]$",
                                 "^[]$",
                                 "^[^]$",
                                 "^[-a]$",
                                 "^[a-]$",
                                 "^[a\\-c]$",
                                 "^[\\d-x]$",
                                 "^[\\]]$",
                                 "^[\\^]$",
                                 "^[\\b]$",
                                 "^[.]$",
                                 "^\\d$",
                                 "^\\D$",
                                 "^\\w$",
                                 "^\\W$",
                                 "^\\s$",
                                 "^\\S$",
                                 "^[\\d]$",
                                 "^[\\D]$",
                                 "^[\\w]$",
                                 "^[\\W]$",
                                 "^[\\s]$",
                                 "^[\\S]$",
                                 "^\\n$",
                                 "^\\r$",
                                 "^\\t$",
                                 "^\\f$",
                                 "^\\v$",
                                 "^\\0$",
                                 "^\\00$",
                                 "^\\01$",
                                 "^\\09$",
                                 "^\\cA$",
                                 "^\\cz$",
                                 "^\\c1$",
                                 "^\\c[$",
                                 "^\\x41$",
                                 "^\\x4$",
                                 "^\\xg1$",
                                 "^\\u0041$",
                                 "^\\u{1F600}$",
                                 "^\\u{110000}$",
                                 "^\\ud83d\\ude00$",
                                 "^\\ud83d$",
                                 "^\\u00$",
                                 "^\\p{L}$",
                                 "^\\P{L}$",
                                 "^\\p{Letter}$",
                                 "^\\p{Lu}$",
                                 "^\\p{Nd}$",
                                 "^\\p{Script=Latin}$",
                                 "^\\p{Nope}$",
                                 "^\\p{L$",
                                 "^\\.$",
                                 "^\\/$",
                                 "^\\-$",
                                 "^\\a$",
                                 "^\\1$",
                                 "^\\k<a>$",
                                 "^(?:a)$",
                                 "^(?<n>a)$",
                                 "^(?=a)a$",
                                 "^(?!a)b$",
                                 "^(?=.*\\d).{3}$",
                                 "^(?!.*x).{2}$",
                                 "a(?=b)",
                                 "^(?<=a)b$",
                                 "^(?<!a)b$",
                                 "(a",
                                 "a)",
                                 "*",
                                 "^*",
                                 "a**",
                                 "a|*",
                                 "\\",
                                 "\\b",
                                 "\\ba",
                                 "a\\b",
                                 "^\\B$",
                                 "a^b",
                                 "a$b",
                                 "(^a|b)c",
                                 "a(b$|c)",
                                 "^(a|b|)$",
                                 "^()$",
                                 "^(a(b(c)))$",
                                 "^\"$",
                                 "^é$",
                                 "^[é-ü]$",
                                 "^😀$",
                                 "[",
                                 "[a",
                                 "(?",
                                 "(?x)a"};

TEST(PatternTexts, OfPatterns) {
  std::string all;
  for (const std::string_view pattern : kPatterns)
    all += concat(pattern, "\n  ", text_of(read_pattern(pattern)), "\n");
  expect_golden_text("grammar/patterns.txt", all);
}

TEST(PatternTexts, OfFormats) {
  std::string all;
  for (const std::string_view format : {"date-time",     "date",          "time",
                                        "duration",      "email",         "idn-email",
                                        "hostname",      "idn-hostname",  "ipv4",
                                        "ipv6",          "ipvanyaddress", "uri",
                                        "url",           "uri-reference", "iri",
                                        "iri-reference", "uuid",          "uri-template",
                                        "json-pointer",  "byte",          "relative-json-pointer",
                                        "regex",         "binary",        "nope"})
    all += concat(format, "\n  ", text_of(format_pattern(format)), "\n");
  expect_golden_text("grammar/formats.txt", all);
}

}  // namespace
}  // namespace nibble
