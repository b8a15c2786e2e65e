// UTF-8 replacement, the class table and NFC: values from the standards, and properties over every
// code point. The whole table is compared with Hugging Face by tools/unicode/unicode_classes.py.
#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "text/tokenizer/tokenizer_nfc.h"
#include "text/tokenizer/tokenizer_utf8.h"
#include "text/tokenizer/unicode_classes.h"

namespace nibble {
namespace {

std::string utf8(char32_t code) {
  std::string out;
  append_utf8(out, code);
  return out;
}

std::string lossy(std::string_view bytes) {
  std::string out;
  append_lossy_utf8(out, bytes, Utf8End::replace);
  return out;
}

TEST(Utf8, EveryCharacterRoundTrips) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    const std::string text = utf8(code);
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    ASSERT_EQ(valid_utf8_prefix(text), surrogate ? 0 : text.size());
    if (surrogate) continue;
    ASSERT_EQ(decode_utf8(text, 0).code, code);
    ASSERT_EQ(decode_utf8(text, 0).bytes, text.size());
    ASSERT_EQ(last_utf8_start("x" + text), 1u);
  }
}

TEST(Utf8, ReplacesMaximalSubparts) {
  const auto marks = [](std::string_view pattern) {  // ? is U+FFFD
    std::string out;
    for (const char c : pattern) out += c == '?' ? std::string("\xEF\xBF\xBD") : std::string(1, c);
    return out;
  };
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"\xF1\x80\x80\xE1\x80\xC2"
       "b\x80"
       "c\x80\xBF"
       "d",
       "???b?c??d"},  // Unicode 3.9, table 3-11
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
       "A",
       "????????A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
       "A",
       "????????A"},
      {"\xF4\x91\x92\x93\xFF"
       "A\x80\xBF"
       "B",
       "?????A??B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
       "A",
       "????A"},
      {"abcdefgh\xFF"
       "ijklmnopqrstuvwxyz\xE2\x82",
       "abcdefgh?ijklmnopqrstuvwxyz?"}};
  for (const auto& [bytes, expected] : cases) EXPECT_EQ(lossy(bytes), marks(expected));
}

TEST(Utf8, KeepsAnUnfinishedEndInStreams) {
  std::string out;
  EXPECT_EQ(append_lossy_utf8(out, "a\xE2\x82", Utf8End::keep), 1u);
  EXPECT_EQ(out, "a");
  EXPECT_EQ(append_lossy_utf8(out, "\xE2\x28\xF0\x9F", Utf8End::keep), 2u);
  EXPECT_EQ(out, "a\xEF\xBF\xBD(");
}

TEST(UnicodeClasses, HasTheClassesOfUnicode16) {
  const auto bits = [](char32_t code) {
    return UnicodeClasses::table().bits(code) & (kLetter | kMark | kNumber | kSpace);
  };
  EXPECT_EQ(bits('a'), kLetter);
  EXPECT_EQ(bits('7'), kNumber);
  EXPECT_EQ(bits('_'), 0);
  EXPECT_EQ(bits(' '), kSpace);
  EXPECT_EQ(bits(0x85), kSpace);
  EXPECT_EQ(bits(0x1C), 0);  // a space to Python, not to the pattern
  EXPECT_EQ(bits(0x180E), 0);
  EXPECT_EQ(bits(0x301), kMark);
  EXPECT_EQ(bits(0x2167), kNumber);
  EXPECT_EQ(bits(0x4E2D), kLetter);
  EXPECT_EQ(bits(0x1C89), kLetter);   // Unicode 16
  EXPECT_EQ(bits(0x10D40), kNumber);  // Unicode 16
  EXPECT_EQ(bits(0x10FFFF), 0);
  size_t letters = 0, marks = 0, numbers = 0, spaces = 0;
  for (char32_t code = 0; code < 0x110000; ++code) {
    letters += bits(code) == kLetter;
    marks += bits(code) == kMark;
    numbers += bits(code) == kNumber;
    spaces += bits(code) == kSpace;
  }
  EXPECT_EQ(letters, 141028u);  // of DerivedGeneralCategory 16.0
  EXPECT_EQ(marks, 2501u);
  EXPECT_EQ(numbers, 1911u);
  EXPECT_EQ(spaces, 25u);
}

TEST(Nfc, ComposesAndOrders) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"e\xCC\x81", "\xC3\xA9"},
      {"q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87"},                // reordered
      {"s\xCC\x87\xCC\xA3", "\xE1\xB9\xA9"},                     // and composed
      {"\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81"},  // Hangul
      {"\xE2\x84\xAB", "\xC3\x85"},                              // angstrom sign
      {"\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"},              // excluded: decomposed
      {"\xCC\x81"
       "e",
       "\xCC\x81"
       "e"},                                       // a mark comes first
      {"a\xDF\xBD\xCC\xA3", "a\xDF\xBD\xCC\xA3"},  // U+07FD, of Unicode 11, has no class here
      {"a\xCC\x81\xDF\xBD", "\xC3\xA1\xDF\xBD"},
      {"\xF0\x91\xA4\xB5\xF0\x91\xA4\xB0", "\xF0\x91\xA4\xB5\xF0\x91\xA4\xB0"},  // of Unicode 13
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(normalize_nfc(text), expected) << text;
}

TEST(Nfc, IsIdempotentAndLeavesInactiveTextAlone) {
  std::mt19937 random(9);
  const char32_t marks[] = {0x301, 0x323, 0x345, 0x334, 0x1161, 0x11A8, 0x9D7, 0x7FD, 0x3099};
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (size_t k = random() % 8; k > 0; --k) {
      const auto code = static_cast<char32_t>(random() % (random() % 2 == 0 ? 0x3000 : 0x20000));
      append_utf8(text, random() % 2 == 0                 ? marks[random() % std::size(marks)]
                        : code >= 0xD800 && code < 0xE000 ? U'e'
                                                          : code);
    }
    const std::string once = normalize_nfc(text);
    ASSERT_EQ(normalize_nfc(once), once);
    if (find_nfc_active(text) == text.size()) {
      ASSERT_EQ(once, text);
    }
    // Both sides of a boundary can be normalized on their own.
    for (size_t at = 0; at < text.size(); at += decode_utf8(text, at).bytes) {
      if (nfc_boundary(text, at) == NfcBoundary::no) continue;
      ASSERT_EQ(normalize_nfc(text.substr(0, at)) + normalize_nfc(text.substr(at)), once);
    }
  }
}

}  // namespace
}  // namespace nibble
