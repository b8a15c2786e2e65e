// Every kind of piece that concat() takes, as text.
#include "base/concat.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace nibble {
namespace {

TEST(Concat, JoinsTextOfEveryType) {
  const char* pointer = "pointer";
  const char array[] = "array";
  EXPECT_EQ(concat("literal ", pointer, ' ', array, std::string(" string"), std::string_view("!")),
            "literal pointer array string!");
  EXPECT_EQ(concat(), "");
  EXPECT_EQ(concat("", std::string(), ""), "");
  EXPECT_EQ(concat(std::string_view("a\0b", 3)), std::string("a\0b", 3));
}

TEST(Concat, IntegersAreNumbersAtTheirLimits) {
  EXPECT_EQ(concat(std::numeric_limits<int64_t>::min(), ' ', std::numeric_limits<int64_t>::max()),
            "-9223372036854775808 9223372036854775807");
  EXPECT_EQ(concat(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(concat(int8_t{-128}, ' ', uint8_t{255}, ' ', int16_t{-1}, ' ', size_t{0}),
            "-128 255 -1 0");
  EXPECT_EQ(concat('x', true, false), "xtruefalse");
}

TEST(Concat, NumbersAreTheShortestThatReadBack) {
  EXPECT_EQ(concat(0.1F, ' ', 0.1, ' ', 1e300, ' ', -0.0), "0.1 0.1 1e+300 -0");
  EXPECT_EQ(concat(double{0.1F}), "0.10000000149011612");  // not the float's own text
  EXPECT_EQ(concat(std::numeric_limits<double>::infinity()), "inf");
}

}  // namespace
}  // namespace nibble
