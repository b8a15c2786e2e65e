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

/// The place of a text of 60,000 tokens is found where it is among the last 16,384.
TEST(RepeatIndex, LooksFarBackButNotWithoutEnd) {
  Tokens prompt(60000);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i);
  const auto found = [&](ptrdiff_t place) {
    RepeatIndex index(8);
    const Tokens said(prompt.begin() + place - 8, prompt.begin() + place);
    index.follow(prompt, said);
    return index.next(prompt, said, 3);
  };
  EXPECT_EQ(found(57000), (Tokens{57000, 57001, 57002}));
  int far = 0;
  for (ptrdiff_t place = 44000; place < 47000; place += 30) far += found(place).empty() ? 0 : 1;
  EXPECT_GT(far, 20);  // out of 100; the others gave their entries to later places
  for (ptrdiff_t place = 1000; place < 43000; place += 1000) EXPECT_TRUE(found(place).empty());
}

/// The first token of a text is its last again: that place is the last known of 16,384, and the
/// first that is not of one more.
TEST(RepeatIndex, KnowsSoManyPlacesAndNoMore) {
  const auto said_after_the_first = [](size_t tokens) {
    Tokens text(tokens, 5);
    text.front() = text.back() = 7;
    text[1] = 8;
    RepeatIndex index(1);
    index.follow(text, {});
    return index.next(text, {}, 2);
  };
  EXPECT_EQ(said_after_the_first(16384), (Tokens{8, 5}));
  EXPECT_EQ(said_after_the_first(16385), Tokens{});
}

}  // namespace
}  // namespace nibble
