// Placeholders of images: expanded, counted, found again; against the obvious way for random
// prompts.
#include "server/images/placeholders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace nibble {
namespace {

constexpr int32_t kImage = 9;

using Ids = std::vector<int32_t>;
using Rows = std::vector<int64_t>;

TEST(Placeholders, EachBecomesItsRows) {
  Ids prompt = {1, kImage, 2, kImage, kImage};
  const auto images = expand_placeholders(prompt, kImage, Rows{2, 1, 3});
  ASSERT_TRUE(images.ok()) << images.error().message;
  EXPECT_EQ(prompt, (Ids{1, kImage, kImage, 2, kImage, kImage, kImage, kImage}));
  EXPECT_EQ(images.value(), (std::vector<ImageTokens>{{1, 2}, {4, 1}, {5, 3}}));
  const int32_t lengths[] = {0, 1, 3, 4, 5, 8};
  for (int32_t tokens = 0; tokens < 6; ++tokens)
    EXPECT_EQ(expanded_length(tokens, images.value()), lengths[tokens]) << tokens;
}

TEST(Placeholders, AsManyAsImagesOrNoPrompt) {
  struct Row {
    Ids prompt;
    Rows rows;
    const char* says;
  };
  const Row kRows[] = {
      {{1, 2}, {4}, "a place for each of 1 images, found 0"},
      {{kImage}, {}, "a place for each of 0 images, found 1"},
      {{kImage, kImage}, {4}, "a place for each of 1 images, found 2"},
      {{kImage}, {int64_t{1} << 31}, "at most 2147483647 tokens, found 2147483648"}};
  for (const Row& row : kRows) {
    Ids prompt = row.prompt;
    const auto refused = expand_placeholders(prompt, kImage, row.rows);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(refused.error().message.find(row.says), std::string::npos) << refused.error().message;
    EXPECT_EQ(prompt, row.prompt);
  }
}

TEST(Placeholders, LengthsAreThoseOfPrefixes) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Ids prompt;
    Rows rows;
    for (size_t i = random() % 20; i > 0; --i) {
      prompt.push_back(random() % 3 == 0 ? kImage : 1);
      if (prompt.back() == kImage) rows.push_back(1 + random() % 5);
    }
    Ids expanded = prompt;
    const auto images = expand_placeholders(expanded, kImage, rows);
    ASSERT_TRUE(images.ok());
    EXPECT_EQ(without_expansion(expanded, images.value()), prompt);
    for (size_t tokens = 0; tokens <= prompt.size(); ++tokens) {
      Ids prefix(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(tokens));
      const auto count = static_cast<size_t>(std::ranges::count(prefix, kImage));
      ASSERT_TRUE(expand_placeholders(prefix, kImage, std::span(rows).first(count)).ok());
      EXPECT_EQ(expanded_length(static_cast<int32_t>(tokens), images.value()),
                static_cast<int32_t>(prefix.size()));
    }
  }
}

}  // namespace
}  // namespace nibble
