// The scanner against PCRE2 running the pattern it stands for, by-hand cuts, and foreign patterns.
#include "text/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "text/tokenizer/pre_tokenizer_regex.h"
#include "text/tokenizer/tokenizer_utf8.h"

namespace nibble {
namespace {

using Words = std::vector<std::string>;

Words split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Words words;
  const auto outcome =
      pre_tokenizer.split(text, [&](std::string_view w) { words.emplace_back(w); });
  EXPECT_TRUE(outcome.ok());
  return words;
}

Words split(KnownPattern pattern, std::string_view text) {
  return split(PreTokenizer::make({std::string(known_pattern_text(pattern))}).value(), text);
}

Words split_by_pcre2(std::string_view pattern, std::string_view text) {
  Words words;
  const auto regex = SplitRegex::compile(pattern);
  EXPECT_TRUE(regex.ok());
  const auto outcome = regex.value()->split(text, [&](std::string_view word) -> Result<void> {
    words.emplace_back(word);
    return {};
  });
  EXPECT_TRUE(outcome.ok());
  return words;
}

std::string random_text(std::mt19937& random) {
  static const std::string_view kPieces[] = {" ",
                                             "  ",
                                             "\t",
                                             "\n",
                                             "\r",
                                             "\r\n",
                                             "'",
                                             "'s",
                                             "'LL",
                                             "'\xC5\xBF",
                                             "a",
                                             "Z",
                                             "7",
                                             "!",
                                             "_",
                                             "\xC2\xA0",
                                             "\xE3\x80\x80",
                                             "\xC2\x85",
                                             "\xE1\xA0\x8E",
                                             "\xCC\x81",
                                             "\xE0\xA5\x8D",
                                             "\xC3\xA9",
                                             "\xE4\xB8\xAD",
                                             "\xC2\xBD",
                                             "\xE2\x85\xA7",
                                             "\xF0\x9F\x98\x80",
                                             "\xE2\x80\x8D",
                                             "\xF0\x91\x8F\x87",
                                             "\xF0\x90\xB5\x80",
                                             "\xF0\xAE\xAF\xB0",
                                             "\xC2\xAD",
                                             "."};
  std::string text;
  const size_t count = random() % 30;
  for (size_t i = 0; i < count; ++i) {
    if (random() % 8 == 0) {
      const auto code = static_cast<char32_t>(random() % (random() % 2 == 0 ? 0x3000 : 0x110000));
      append_utf8(text, code >= 0xD800 && code < 0xE000 ? U'a' : code);
    } else {
      text += kPieces[random() % std::size(kPieces)];
    }
  }
  return text;
}

TEST(PreTokenizer, TheScannerIsThePattern) {
  std::mt19937 random(3);
  for (const KnownPattern pattern : {KnownPattern::qwen3_5, KnownPattern::qwen2}) {
    for (int i = 0; i < 3000; ++i) {
      const std::string text = random_text(random);
      EXPECT_EQ(split(pattern, text), split_by_pcre2(known_pattern_text(pattern), text)) << text;
    }
  }
}

TEST(PreTokenizer, CutsByHand) {
  const auto words = [](std::string_view text) { return split(KnownPattern::qwen3_5, text); };
  EXPECT_EQ(words(""), Words{});
  EXPECT_EQ(words("I'll go  on\n\n  12"),
            (Words{"I", "'ll", " go", " ", " on", "\n\n", " ", " ", "1", "2"}));
  EXPECT_EQ(words("x = {};\r\n\tend"), (Words{"x", " =", " {};\r\n", "\tend"}));
  EXPECT_EQ(words("  \n \n  "), (Words{"  \n \n", "  "}));
  // A combining mark stays with its word in Qwen3.5, and is punctuation in Qwen2 and Qwen3.
  EXPECT_EQ(words("q\xCC\x87q"), Words{"q\xCC\x87q"});
  EXPECT_EQ(split(KnownPattern::qwen2, "q\xCC\x87q"), (Words{"q", "\xCC\x87q"}));
}

TEST(PreTokenizer, RunsForeignPatternsInStages) {
  const auto two = PreTokenizer::make({R"(\p{N}{1,3})", R"(-+)"}).value();
  EXPECT_EQ(split(two, "ab--12345-c"), (Words{"ab", "--", "123", "45", "-", "c"}));
  EXPECT_EQ(split(PreTokenizer::make({}).value(), "a b"), Words{"a b"});
  const auto mixed =
      PreTokenizer::make({"b+", std::string(known_pattern_text(KnownPattern::qwen2))}).value();
  EXPECT_EQ(split(mixed, "a abba"), (Words{"a", " a", "bb", "a"}));
}

TEST(PreTokenizer, ForeignClassesMeanWhatTheyMeanToOniguruma) {
  // U+180E is no space; U+10D40, U+2EBF0 and U+113C7 came with Unicode 15.1 and 16.
  EXPECT_EQ(split_by_pcre2(R"(\s)",
                           "a\xE1\xA0\x8E"
                           "b c"),
            (Words{"a\xE1\xA0\x8E"
                   "b",
                   " ", "c"}));
  EXPECT_EQ(split_by_pcre2(R"(\S)", "\xE1\xA0\x8E "), (Words{"\xE1\xA0\x8E", " "}));
  EXPECT_EQ(split_by_pcre2(R"([\s!])", "a\xC2\x85!"), (Words{"a", "\xC2\x85", "!"}));
  EXPECT_EQ(split_by_pcre2(R"(\p{N})", "a\xF0\x90\xB5\x80"), (Words{"a", "\xF0\x90\xB5\x80"}));
  EXPECT_EQ(split_by_pcre2(R"([\p{L}]+)", "!a\xF0\xAE\xAF\xB0"), (Words{"!", "a\xF0\xAE\xAF\xB0"}));
  EXPECT_EQ(split_by_pcre2(R"(\P{M}+)", "a\xF0\x91\x8F\x87"), (Words{"a", "\xF0\x91\x8F\x87"}));
}

TEST(PreTokenizer, RefusesWhatTheEnginesReadDifferently) {
  for (const char* pattern : {R"(\w+)", R"(\bx)", R"(a\h)", "^a", "a$", ".", "[a[b]]", "[a&&b]",
                              "a{2}+", R"(\Kx)", R"(\R)"}) {
    const auto regex = SplitRegex::compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_EQ(regex.error().code, ErrorCode::unsupported) << regex.error().message;
  }
  EXPECT_EQ(SplitRegex::compile("a(").error().code, ErrorCode::corrupt);
  EXPECT_FALSE(SplitRegex::compile(std::string(20000, 'a')).ok());
}

TEST(PreTokenizer, LongWordsOfForeignPatternsStayWhole) {
  const std::string word(20'000, 'a');  // a way back for each character
  EXPECT_EQ(split_by_pcre2("(?:a|b)+c?", concat("!", word)), (Words{"!", word}));
}

TEST(PreTokenizer, GivesUpOnExplodingPatterns) {
  const auto regex = SplitRegex::compile("(a+)+[bc]").value();
  const auto outcome = regex->split(std::string(2000, 'a'), [](auto) { return Result<void>(); });
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace nibble
