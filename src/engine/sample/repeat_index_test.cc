// Against the definition: the last earlier place after equal tokens, found by comparing all of
// them.
#include "engine/sample/repeat_index.h"

#include <gtest/gtest.h>

#include <random>

namespace nibble {
namespace {

using Tokens = std::vector<int32_t>;

Tokens by_definition(const Tokens& text, size_t match, size_t count) {
  for (size_t place = text.size() - 1; text.size() > match && place >= match; --place) {
    bool same = true;
    for (size_t i = 1; i <= match; ++i) same = same && text[place - i] == text[text.size() - i];
    if (!same) continue;
    const size_t end = std::min(place + count, text.size());
    return {text.begin() + static_cast<ptrdiff_t>(place),
            text.begin() + static_cast<ptrdiff_t>(end)};
  }
  return {};
}

/// Two places may share an entry of the table: then one is not found, and nothing else is.
TEST(RepeatIndex, FindsTheLastPlaceOrNone) {
  std::mt19937 random(3);
  int found = 0;
  int missed = 0;
  for (int seed = 0; seed < 60; ++seed) {
    const size_t match = 1 + random() % 4;
    RepeatIndex index(static_cast<int32_t>(match));
    Tokens prompt(random() % 700);
    for (int32_t& token : prompt) token = static_cast<int32_t>(random() % 5);
    Tokens generated;
    for (int step = 0; step < 150; ++step) {
      index.follow(prompt, generated);
      Tokens text = prompt;
      text.insert(text.end(), generated.begin(), generated.end());
      const Tokens expected = text.empty() ? Tokens{} : by_definition(text, match, 4);
      const Tokens next = index.next(prompt, generated, 4);
      if (!next.empty()) {
        ASSERT_EQ(next, expected) << "seed " << seed << " step " << step;
      }
      (next.empty() ? missed : found) += expected.empty() ? 0 : 1;
      for (size_t more = 1 + random() % 3; more > 0; --more)
        generated.push_back(static_cast<int32_t>(random() % 5));
    }
  }
  EXPECT_GT(found, 5000);
  EXPECT_LT(missed, found / 8);
}

TEST(RepeatIndex, LooksFarBack) {
  Tokens prompt(60000);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i);
  RepeatIndex index(8);
  const Tokens said(prompt.begin() + 100, prompt.begin() + 108);
  index.follow(prompt, said);
  EXPECT_EQ(index.next(prompt, said, 3), (Tokens{108, 109, 110}));
}

}  // namespace
}  // namespace nibble
