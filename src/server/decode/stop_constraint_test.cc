// StopStrings as a constraint: in pieces, taken back, with a least number of tokens; and the
// decoder must find the same end.
#include <gtest/gtest.h>

#include <random>

#include "server/decode/choice_decoder.h"
#include "server/testing/test_model.h"

namespace nibble {
namespace {

using Tokens = std::vector<int32_t>;

/// The definition, computed directly: the least n such that the text of tokens [skipped, n) holds a
/// stop string.
std::optional<size_t> expected_end(const Tokens& tokens, const std::vector<std::string>& stops,
                                   size_t skipped) {
  std::string text;
  for (size_t i = skipped; i < tokens.size(); ++i) {
    text.push_back(static_cast<char>(tokens[i]));
    for (const std::string& stop : stops)
      if (text.find(stop) != std::string::npos) return i + 1;
  }
  return std::nullopt;
}

TEST(StopStrings, PiecesAndRollbacksLeaveNoTrace) {
  const ServedModel model = testing::served_model();
  std::mt19937 random(9);
  const auto pick = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  int ends = 0;
  for (int seed = 0; seed < 1500; ++seed) {
    const std::vector<std::string> stops = seed % 2 == 0
                                               ? std::vector<std::string>{"aba", "bb"}
                                               : std::vector<std::string>{"aab", "abab", "c"};
    const int32_t least = pick(6);
    StopStrings tried(model.tokenizer, stops, least);
    Tokens kept;
    for (int step = 0; step < 10; ++step) {
      Tokens piece(static_cast<size_t>(1 + pick(3)));
      for (int32_t& token : piece) token = 'a' + pick(2);
      Tokens all = kept;
      all.insert(all.end(), piece.begin(), piece.end());
      const auto end = expected_end(all, stops, static_cast<size_t>(least));
      const auto found = tried.accept(piece);
      ASSERT_EQ(found.has_value(), end.has_value()) << "seed " << seed;
      if (found) {
        ASSERT_EQ(kept.size() + *found, *end) << "seed " << seed;
        all.resize(*end);
        ++ends;
        ChoiceDecoder decoder(model, {.stops = stops, .stops_after = least});
        for (size_t i = 0; i < all.size(); ++i) {
          ASSERT_FALSE(decoder.stop_string()) << "seed " << seed;
          decoder.push(all[i]);
        }
        ASSERT_TRUE(decoder.stop_string()) << "seed " << seed;
      }
      kept = all;
      const size_t count =
          std::max<size_t>(static_cast<size_t>(pick(static_cast<int>(kept.size()))), found ? 1 : 0);
      if (found || pick(1) == 0) {
        tried.rollback(count);
        kept.resize(kept.size() - count);
      }
    }
  }
  EXPECT_GT(ends, 1000);
}

}  // namespace
}  // namespace nibble
