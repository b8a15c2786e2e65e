// JSON: what is accepted, what is refused and with which words, and how values print.
#include "base/json.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

Json parsed(std::string_view text) { return parse_json(text, "test").value(); }

TEST(Json, KeepsObjectOrderAndNumberKinds) {
  const Json value = parsed(R"({"b":1,"a":[2.5,-3,1e3,true,null,"x"],"c":{}})");
  EXPECT_EQ(value.dump(), R"({"b":1,"a":[2.5,-3,1000.0,true,null,"x"],"c":{}})");
  EXPECT_TRUE(value.find("b")->is_int());
  EXPECT_TRUE(value.find("a")->as_array()[0].is_double());
  EXPECT_EQ(value.find("missing"), nullptr);
}

TEST(Json, ReadsNumbersExactly) {
  EXPECT_EQ(parsed("[0.0,-0.0,0e99,0.000e-400,1e-400,5e-324,9007199254740993,0.1]").dump(),
            "[0.0,-0.0,0.0,0.0,0.0,5e-324,9007199254740993,0.1]");
  EXPECT_TRUE(parsed("9223372036854775807").is_int());
  EXPECT_TRUE(parsed("9223372036854775808").is_double());
  EXPECT_TRUE(parsed("-9223372036854775808").is_int());
  EXPECT_TRUE(parsed("-0").is_int());
  EXPECT_FALSE(parse_json("1e400", "test").ok());
}

TEST(Json, PrintsDoublesAsPythonDoes) {
  const auto print = [](double value) { return Json(value).dump(); };
  EXPECT_EQ(print(1), "1.0");
  EXPECT_EQ(print(0.1), "0.1");
  EXPECT_EQ(print(1e16), "1e+16");
  EXPECT_EQ(print(1e-5), "1e-05");
  EXPECT_EQ(print(123456789012345.0), "123456789012345.0");
}

TEST(Json, EscapesOnlyWhatItMust) {
  EXPECT_EQ(Json("a\"\\\n\t\x01/\xC3\xA9<").dump(), "\"a\\\"\\\\\\n\\t\\u0001/\xC3\xA9<\"");
}

TEST(Json, ReadsEscapesAndSurrogates) {
  EXPECT_EQ(parsed(R"("\u00e9\ud83d\ude00\n")").as_string(), "\xC3\xA9\xF0\x9F\x98\x80\n");
}

struct BadCase {
  const char* text;
  const char* expected_words;
};

TEST(Json, RefusesBadInputInOneLine) {
  const BadCase cases[] = {
      {"", "not valid JSON"},
      {"{", "not valid JSON"},
      {"[1,]", "not valid JSON"},
      {"{\"a\":1,\"a\":2}", "duplicate key \"a\""},
      {"01", "not valid JSON"},
      {"nul", "not valid JSON"},
      {"\"\xFF\"", "not valid JSON"},
      {"\"\\ud800\"", "not valid JSON"},
      {"\"\\udc00\"", "a lone surrogate escape"},
      {"1 2", "not valid JSON"},
      {"{'a':1}", "not valid JSON"},
      {"NaN", "not valid JSON"},
      {"\"a\nb\"", "not valid JSON"},
  };
  for (const auto& bad : cases) {
    const auto result = parse_json(bad.text, "test");
    ASSERT_FALSE(result.ok()) << bad.text;
    EXPECT_NE(result.error().message.find(bad.expected_words), std::string::npos)
        << result.error().message;
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  }
}

TEST(Json, KeepsRefusalsToOneLine) {
  const auto result = parse_json("{\"a\\nb\":1,\"a\\nb\":2}", "test");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos) << result.error().message;
}

TEST(Json, LimitsDepthAndSize) {
  EXPECT_TRUE(parse_json(std::string(64, '[') + std::string(64, ']'), "test").ok());
  const auto deep = parse_json(std::string(65, '[') + std::string(65, ']'), "test");
  ASSERT_FALSE(deep.ok());
  EXPECT_NE(deep.error().message.find("nesting deeper than 64"), std::string::npos);
  const auto large = parse_json("[1,2,3]", "test", {.bytes_max = 3});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().message, "test is too large: expected at most 3 bytes, found 7");
}

TEST(Json, CanKeepTheLastDuplicate) {
  const auto value =
      parse_json(R"({"a":1,"b":2,"a":3})", "test", {.duplicate_keys = DuplicateKeys::keep_last});
  EXPECT_EQ(value.value().dump(), R"({"a":3,"b":2})");
}

}  // namespace
}  // namespace nibble
