// Reads of one object key by key: ranges include their ends, null is absent, errors say what was
// there.
#include "model/config/config_section.h"

#include <gtest/gtest.h>

#include "base/concat.h"

namespace nibble {
namespace {

class Section : public testing::Test {
 protected:
  const Json json_ = parse_json(R"({"none": null, "five": 5, "half": 2.5, "yes": true, "word": "x",
                                    "list": [3, 5], "mixed": [3, "x"],
                                    "inner": {"seven": 7}})",
                                "test")
                         .value();
  const ConfigSection section_{json_, "file: "};
};

template <typename T>
void expect_error(const Result<T>& result, ErrorCode code, std::string_view words) {
  ASSERT_FALSE(result.ok()) << words;
  EXPECT_EQ(result.error().code, code) << words;
  EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
}

TEST_F(Section, IntegersLieInTheirRange) {
  EXPECT_EQ(section_.integer("five", {5, 5}).value(), 5);
  expect_error(section_.integer("five", {6, 9}), ErrorCode::corrupt,
               "file: five: expected an integer in 6..9, found 5");
  expect_error(section_.integer("five", {1, 4}), ErrorCode::corrupt,
               "expected an integer in 1..4, found 5");
  expect_error(section_.integer("half", {1, 9}), ErrorCode::corrupt, "found 2.5");
  expect_error(section_.integer("none", {1, 9}), ErrorCode::corrupt,
               "file: none: expected an integer in 1..9, found nothing");
  EXPECT_EQ(section_.integer_or("absent", 77, {1, 9}).value(), 77);
  EXPECT_EQ(section_.integer_or("none", 77, {1, 9}).value(), 77);
  EXPECT_EQ(section_.integer_or("five", 77, {1, 9}).value(), 5);
  expect_error(section_.integer_or("five", 77, {1, 4}), ErrorCode::corrupt, "found 5");
}

TEST_F(Section, NumbersLieInTheirRange) {
  EXPECT_EQ(section_.number("half", {2.5, 2.5}).value(), 2.5);
  EXPECT_EQ(section_.number("five", {2.5, 5.0}).value(), 5.0);
  expect_error(section_.number("half", {2.75, 9.0}), ErrorCode::corrupt,
               "file: half: expected a number in 2.75..9, found 2.5");
  expect_error(section_.number("half", {0.0, 2.25}), ErrorCode::corrupt, "found 2.5");
  expect_error(section_.number("word", {0.0, 9.0}), ErrorCode::corrupt, "found \"x\"");
  expect_error(section_.number("absent", {0.0, 9.0}), ErrorCode::corrupt, "found nothing");
  EXPECT_EQ(section_.number_or("none", 77.0, {0.0, 9.0}).value(), 77.0);
  EXPECT_EQ(section_.number_or("half", 77.0, {0.0, 9.0}).value(), 2.5);
}

TEST_F(Section, WordsAndTruthsAreOfTheirType) {
  EXPECT_EQ(section_.boolean("yes").value(), true);
  EXPECT_EQ(section_.boolean("none").value(), std::nullopt);
  expect_error(section_.boolean("five"), ErrorCode::corrupt, "expected true or false, found 5");
  EXPECT_EQ(section_.text("word").value(), "x");
  expect_error(section_.text("five"), ErrorCode::corrupt, "expected a string, found 5");
  expect_error(section_.text("none"), ErrorCode::corrupt, "expected a string, found nothing");
  EXPECT_EQ(section_.text_or("none", "other").value(), "other");
  EXPECT_EQ(section_.text_or("word", "other").value(), "x");
}

TEST_F(Section, EachIntegerOfAListLiesInTheRange) {
  using List = std::vector<int64_t>;
  EXPECT_EQ(section_.integers_or_none("list", {3, 5}).value(), (List{3, 5}));
  EXPECT_EQ(section_.integers_or_none("five", {3, 5}).value(), (List{5}));
  EXPECT_EQ(section_.integers_or_none("none", {3, 5}).value(), List());
  expect_error(section_.integers_or_none("list", {4, 5}), ErrorCode::corrupt,
               "file: list: expected a list of integers in 4..5, found 3");
  expect_error(section_.integers_or_none("list", {3, 4}), ErrorCode::corrupt, "found 5");
  expect_error(section_.integers_or_none("mixed", {3, 5}), ErrorCode::corrupt, "found \"x\"");
  expect_error(section_.integers_or_none("word", {3, 5}), ErrorCode::corrupt, "found \"x\"");
  expect_error(section_.integers_or_none("five", {3, 4}), ErrorCode::corrupt, "found 5");
}

TEST_F(Section, KeysOfAnObjectInItAreNamedWhole) {
  const ConfigSection inner = section_.section("inner").value();
  EXPECT_EQ(inner.integer("seven", {7, 7}).value(), 7);
  EXPECT_EQ(inner.name("seven"), "file: inner.seven");
  expect_error(section_.section("five"), ErrorCode::corrupt, "expected an object, found 5");
  expect_error(section_.section("none"), ErrorCode::corrupt, "expected an object, found nothing");
}

TEST_F(Section, AValueThatMustBeMayBeAbsent) {
  EXPECT_TRUE(section_.must_be_true("yes", "why").ok());
  EXPECT_TRUE(section_.must_be_false("none", "why").ok());
  EXPECT_TRUE(section_.must_equal("absent", "y", "why").ok());
  EXPECT_TRUE(section_.must_equal("word", "x", "why").ok());
  expect_error(section_.must_be_false("yes", "why"), ErrorCode::unsupported,
               "file: yes: expected false, found true; why");
  expect_error(section_.must_be_true("five", "why"), ErrorCode::unsupported,
               "expected true, found 5");
  expect_error(section_.must_equal("word", "y", "why"), ErrorCode::unsupported,
               "expected \"y\", found \"x\"");
}

/// Values of 40 characters are shown, quotes included.
TEST(ConfigSection, LongValuesAreNotShown) {
  for (const size_t size : {38U, 39U}) {
    const std::string word(size, 'w');
    Json json = Json::Object{};
    json.set("word", Json(word));
    const auto wrong = ConfigSection(json, "").boolean("word");
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().message.find(word) != std::string::npos, size == 38U);
    EXPECT_EQ(wrong.error().message.find("found a long ") != std::string::npos, size == 39U);
  }
}

}  // namespace
}  // namespace nibble
