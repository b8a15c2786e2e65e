// Names, bytes and refusals of --card-limit.
#include "plan/card_limit.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(CardLimit, NamesACard) {
  const CardLimit limit = card_limit("rtx5090").value();
  EXPECT_EQ(limit.memory_bytes, (int64_t{32607} - 1024) << 20);
  EXPECT_EQ(limit.shared_bytes, 99 * 1024);
  EXPECT_TRUE(limit.portable_kernels);
  EXPECT_FALSE(card_limit("h100").value().portable_kernels);
}

TEST(CardLimit, TakesBytes) {
  EXPECT_EQ(card_limit("24G").value().memory_bytes, int64_t{24} << 30);
  EXPECT_EQ(card_limit("123456").value().memory_bytes, 123456);
  EXPECT_EQ(card_limit("123456").value().shared_bytes, 0);
  EXPECT_EQ(card_limit("").value().memory_bytes, 0);
}

TEST(CardLimit, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"rtx9999", "-1", "0", "G", "9999999999T", "12 G"}) {
    const auto limit = card_limit(text);
    ASSERT_FALSE(limit.ok()) << text;
    EXPECT_NE(limit.error().message.find("rtx5090"), std::string::npos) << limit.error().message;
  }
}

}  // namespace
}  // namespace nibble
