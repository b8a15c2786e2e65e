// Masks that take long are made by other threads, and are the same as those that are made at once.
#include "grammar/slow_masks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/slow_constraint.h"
#include "grammar/test_vocabulary.h"

namespace nibble {
namespace {

std::vector<uint32_t> mask_of(TokenConstraint& constraint) {
  std::vector<uint32_t> bits((kVocab + 31) / 32, ~0U);
  constraint.mask({}, bits);
  return bits;
}

TEST(SlowMasks, AreMadeAheadAndAreTheSame) {
  GrammarCompiler compiler(vocabulary);
  const auto grammar = compiler.compile(schema(kPerson));
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  const auto at_once = make_grammar_constraint(grammar.value(), -1);
  const auto made = make_grammar_constraint(grammar.value(), -1);
  auto* const ahead = dynamic_cast<SlowConstraint*>(made.get());
  ASSERT_NE(ahead, nullptr);
  EXPECT_EQ(ahead->next(), SlowConstraint::Next::ready);  // nobody knows yet
  EXPECT_EQ(ahead->drafts(), SlowConstraint::Drafts::taken);
  make_masks_ahead(*grammar.value());
  const std::string_view said = R"({"name":"Ada Lovelace")";
  for (const char c : said) {
    const std::vector<uint32_t> expected = mask_of(*at_once);
    ASSERT_EQ(ahead->next(), SlowConstraint::Next::making) << c;
    while (ahead->next() == SlowConstraint::Next::making)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    ASSERT_EQ(mask_of(*ahead), expected) << c;
    const auto token = static_cast<int32_t>(c);
    ASSERT_FALSE(at_once->accept({&token, 1}));
    ASSERT_FALSE(ahead->accept({&token, 1}));
  }
  EXPECT_EQ(ahead->drafts(), SlowConstraint::Drafts::alone);
  // Taken back while the next is being made.
  EXPECT_EQ(ahead->next(), SlowConstraint::Next::making);
  ahead->rollback(said.size());
  at_once->rollback(said.size());
  EXPECT_EQ(mask_of(*ahead), mask_of(*at_once));
}

/// A sequence that is cancelled leaves while its mask is being made.
TEST(SlowMasks, OutliveTheirSequence) {
  GrammarCompiler compiler(vocabulary);
  const auto grammar = compiler.compile(schema(kPerson));
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  for (int round = 0; round < 5; ++round) {
    const auto made = make_grammar_constraint(grammar.value(), -1);
    const int32_t token = '{';
    make_masks_ahead(*grammar.value());
    ASSERT_FALSE(made->accept({&token, 1}));
    dynamic_cast<SlowConstraint&>(*made).next();
  }
}

}  // namespace
}  // namespace nibble
