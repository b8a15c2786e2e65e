// Maps in each form that is taken, and in some that are not; the tokens that a number means.
#include "cli/drafts/token_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

namespace nibble {
namespace {

TEST(TokenMap, IsAListOfIds) {
  const std::vector<int32_t> expected = {0, 7, 99};
  for (const char* text : {"[7, 99,0]", "7 99 0", "99\n7\r\n0\n", " [0,7,7,99] \n", "0,7,99"})
    EXPECT_EQ(parse_token_map(text, "map", 100).value(), expected) << text;
  for (const auto& [text, said] : {std::pair<std::string, const char*>{"", "none"},
                                   {"[]", "none"},
                                   {"[1, 2", "its beginning alone"},
                                   {"1 100", "from 0 to 99"},
                                   {"-1", "from 0 to 99"},
                                   {"1 2x", "2x"},
                                   {"3.5", "3.5"},
                                   {"99999999999", "99999999999"},
                                   {"{\"a\": 1}", "token ids"},
                                   {std::string("PK\x03\x04\x00\xFF", 6), "torch"}}) {
    const auto refused = parse_token_map(text, "map", 100);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(refused.error().message.find(said), std::string::npos) << refused.error().message;
    EXPECT_EQ(std::ranges::count(refused.error().message, '\n'), 0) << refused.error().message;
  }
}

/// Special tokens end the vocabularies of the known families; a stop token among others is alone.
TEST(TokenMap, ANumberMeansTheFirstTokensAndTheSpecialOnes) {
  ModelConfig config;
  config.vocab_rows = 5000;
  config.stop_ids = {4990, 4994};
  const auto ends = first_tokens(config, 64).value();
  ASSERT_EQ(ends.size(), 64U);
  for (int32_t i = 0; i < 54; ++i) EXPECT_EQ(ends[static_cast<size_t>(i)], i);
  for (int32_t i = 0; i < 10; ++i) EXPECT_EQ(ends[static_cast<size_t>(54 + i)], 4990 + i);
  config.stop_ids = {3};
  EXPECT_EQ(first_tokens(config, 4).value(), (std::vector<int32_t>{0, 1, 2, 3}));
  config.stop_ids = {1200};
  EXPECT_EQ(first_tokens(config, 3).value(), (std::vector<int32_t>{0, 1, 1200}));
  EXPECT_EQ(first_tokens(config, 5000).value().size(), 5000U);
  for (const int64_t count : {0, 1, 5001}) EXPECT_FALSE(first_tokens(config, count).ok()) << count;
}

}  // namespace
}  // namespace nibble
