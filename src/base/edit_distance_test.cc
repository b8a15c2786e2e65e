// Distances by hand, and the rules that every distance obeys on random words.
#include "base/edit_distance.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/utf8.h"

namespace nibble {
namespace {

TEST(EditDistance, ByHand) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2U);
  EXPECT_EQ(edit_distance("ab", "ba"), 2U);  // an exchange counts twice
}

TEST(EditDistance, IsAMetric) {
  std::mt19937 random(5);
  const auto word = [&] {
    std::string text(random() % 6, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string a = word(), b = word(), c = word();
    EXPECT_EQ(edit_distance(a, b) == 0, a == b);
    EXPECT_EQ(edit_distance(a, b), edit_distance(b, a));
    EXPECT_LE(edit_distance(a, c), edit_distance(a, b) + edit_distance(b, c));
  }
}

TEST(Utf8, WritesTheFirstAndLastOfEachLength) {
  const auto bytes = [](uint32_t code) {
    std::string out;
    append_utf8(out, code);
    return out;
  };
  EXPECT_EQ(bytes(0), std::string(1, '\0'));
  EXPECT_EQ(bytes(0x7F), "\x7F");
  EXPECT_EQ(bytes(0x80), "\xC2\x80");
  EXPECT_EQ(bytes(0x7FF), "\xDF\xBF");
  EXPECT_EQ(bytes(0x800), "\xE0\xA0\x80");
  EXPECT_EQ(bytes(0xFFFF), "\xEF\xBF\xBF");
  EXPECT_EQ(bytes(0x10000), "\xF0\x90\x80\x80");
  EXPECT_EQ(bytes(0x10FFFF), "\xF4\x8F\xBF\xBF");
}

}  // namespace
}  // namespace nibble
