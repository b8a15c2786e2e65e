// TokenLimits against the definition computed directly, also with drafts and after rollbacks; and
// the spellings of words.
#include "server/decode/token_limits.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/sample/token_bits.h"
#include "server/testing/test_model.h"

namespace nibble {
namespace {

using Tokens = std::vector<int32_t>;
constexpr int32_t kRows = 40;

std::vector<uint32_t> all_bits() { return std::vector<uint32_t>(2, ~0U); }

/// May `token` follow `said`?
bool may_follow(const TokenLimits::Options& options, Tokens said, int32_t token) {
  if (std::ranges::find(options.exempt, token) != options.exempt.end()) return true;
  const auto& allowed = options.allowed;
  if (!allowed.empty() && std::ranges::find(allowed, token) == allowed.end()) return false;
  said.push_back(token);
  return std::ranges::none_of(options.banned, [&](const Tokens& word) {
    return said.size() >= word.size() &&
           std::equal(word.begin(), word.end(), said.end() - static_cast<ptrdiff_t>(word.size()));
  });
}

TEST(TokenLimits, AllowsWhatTheDefinitionAllows) {
  std::mt19937 random(5);
  const auto pick = [&](int32_t most) {
    return std::uniform_int_distribution<int32_t>(0, most)(random);
  };
  const std::vector<TokenLimits::Options> kinds = {
      {.allowed = {0, 1, 2, 39}, .banned = {}, .exempt = {}},
      {.allowed = {}, .banned = {{1}, {0, 2}, {2, 2, 0}}, .exempt = {}},
      {.allowed = {0, 1, 2, 3}, .banned = {{0, 0}, {1, 2, 3}}, .exempt = {3, 7}}};
  for (int seed = 0; seed < 300; ++seed) {
    const TokenLimits::Options& options = kinds[static_cast<size_t>(seed) % kinds.size()];
    TokenLimits limits(options);
    Tokens kept;
    for (int step = 0; step < 12; ++step) {
      Tokens more(static_cast<size_t>(1 + pick(2)));
      for (int32_t& token : more) token = pick(3);
      EXPECT_FALSE(limits.accept(more));
      kept.insert(kept.end(), more.begin(), more.end());
      const auto back = static_cast<size_t>(pick(static_cast<int32_t>(more.size())));
      limits.rollback(back);
      kept.resize(kept.size() - back);
      Tokens drafted(static_cast<size_t>(pick(3)));
      for (int32_t& token : drafted) token = pick(3);
      Tokens said = kept;
      said.insert(said.end(), drafted.begin(), drafted.end());
      size_t fits = 0;
      Tokens before = kept;
      while (fits < drafted.size() && may_follow(options, before, drafted[fits]))
        before.push_back(drafted[fits++]);
      ASSERT_EQ(limits.fitting(drafted), fits) << "seed " << seed;
      auto bits = all_bits();
      const auto state = limits.mask(drafted, bits);
      bool any_forbidden = false;
      for (int32_t token = 0; token < kRows; ++token) {
        ASSERT_EQ(has_token(bits, token), may_follow(options, said, token))
            << "seed " << seed << " token " << token;
        any_forbidden = any_forbidden || !has_token(bits, token);
      }
      if (any_forbidden) ASSERT_EQ(state, TokenConstraint::MaskState::limited);
    }
  }
}

TEST(TokenLimits, LeavesForbiddenWhatOthersForbade) {
  TokenLimits limits({.allowed = {1, 2}, .banned = {}, .exempt = {3}});
  std::vector<uint32_t> bits = all_bits();
  forbid_token(bits, 2);
  forbid_token(bits, 3);
  EXPECT_EQ(limits.mask({}, bits), TokenConstraint::MaskState::limited);
  for (int32_t token = 0; token < kRows; ++token) EXPECT_EQ(has_token(bits, token), token == 1);
}

/// The test model has a token for each byte, so a space makes a spelling longer: vLLM bans the
/// first alone then.
TEST(TokenLimits, SpellsWordsAsTheyBeginATextAndAfterASpace) {
  const ServedModel model = testing::served_model();
  const auto found = spellings_of(model.tokenizer, "  ab");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value(), (std::vector<Tokens>{{'a', 'b'}}));
}

}  // namespace
}  // namespace nibble
