// Masks are made by other threads, are the same as those that are made at once, and nobody waits
// for one that takes long, not even for the first of a grammar.
#include "grammar/slow_masks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/slow_constraint.h"
#include "grammar/test_vocabulary.h"
#include "testing/soon.h"

namespace nibble {
namespace {

using Next = SlowConstraint::Next;

std::vector<uint32_t> mask_of(TokenConstraint& constraint, std::span<const int32_t> drafted = {}) {
  std::vector<uint32_t> bits((kVocab + 31) / 32, ~0U);
  constraint.mask(drafted, bits);
  return bits;
}

std::shared_ptr<const Grammar> person() {
  GrammarCompiler compiler(vocabulary);
  return compiler.compile(schema(kPerson)).value();
}

std::unique_ptr<SlowConstraint> constraint_of(std::shared_ptr<const Grammar> grammar,
                                              int32_t think_end = -1) {
  auto made = make_grammar_constraint(std::move(grammar), think_end);
  auto* const slow = dynamic_cast<SlowConstraint*>(made.get());
  CHECK(slow != nullptr, "a grammar's masks may take long");
  static_cast<void>(made.release());
  return std::unique_ptr<SlowConstraint>(slow);
}

void wait_for(SlowConstraint& constraint, std::span<const int32_t> drafted = {}) {
  const bool made = testing::soon([&] { return constraint.next(drafted) == Next::ready; });
  CHECK(made, "a mask that does not come");
}

TEST(SlowMasks, AreMadeAheadAndAreTheSame) {
  const auto at_once = constraint_of(person());
  const auto grammar = person();
  const auto ahead = constraint_of(grammar);
  EXPECT_EQ(ahead->drafts(), SlowConstraint::Drafts::taken);
  const std::string_view said = R"({"name":"Ada Lovelace")";
  for (size_t i = 0; i < said.size(); ++i) {
    if (i == said.size() / 2) mark_slow(*grammar);
    const std::vector<uint32_t> expected = mask_of(*at_once);
    const Next first = ahead->next({});
    ASSERT_NE(first, Next::ready) << i;
    if (i >= said.size() / 2) {
      ASSERT_EQ(first, Next::making) << i;
    }
    wait_for(*ahead);
    ASSERT_EQ(mask_of(*ahead), expected) << i;
    const auto token = static_cast<int32_t>(said[i]);
    ASSERT_FALSE(at_once->accept({&token, 1}));
    ASSERT_FALSE(ahead->accept({&token, 1}));
  }
  EXPECT_EQ(ahead->drafts(), SlowConstraint::Drafts::alone);
  // Taken back while the next is being made.
  EXPECT_EQ(ahead->next({}), Next::making);
  ahead->rollback(said.size());
  at_once->rollback(said.size());
  EXPECT_EQ(mask_of(*ahead), mask_of(*at_once));
}

/// The masks after drafts too, whether or not the grammar takes them, and after thinking.
TEST(SlowMasks, OfDraftsAreMadeAheadAndAreTheSame) {
  for (const int32_t think_end : {-1, kThinkEnd}) {
    const auto at_once = constraint_of(person(), think_end);
    const auto ahead = constraint_of(person(), think_end);
    std::vector<int32_t> drafted;
    if (think_end >= 0) drafted = {'h', 'm', kThinkEnd, '\n'};
    for (const char c : std::string_view(R"({"name":")")) drafted.push_back(c);
    for (const char c : std::string_view(R"("x)")) drafted.push_back(c);  // x is not taken
    drafted.push_back('y');
    wait_for(*ahead, drafted);
    for (size_t i = 0; i <= drafted.size(); ++i) {
      const auto first = std::span<const int32_t>(drafted).first(i);
      EXPECT_EQ(ahead->next(first), Next::ready) << i;
      EXPECT_EQ(mask_of(*ahead, first), mask_of(*at_once, first)) << i;
    }
    const int32_t other = '[';
    EXPECT_EQ(mask_of(*ahead, {&other, 1}), mask_of(*at_once, {&other, 1}));
    EXPECT_EQ(mask_of(*ahead), mask_of(*at_once));
  }
}

/// While nothing but thinking can come, there is nothing to make.
TEST(SlowMasks, AreNotMadeWhileTheModelThinks) {
  const auto thinking = constraint_of(person(), kThinkEnd);
  const int32_t token = 'h';
  EXPECT_EQ(thinking->next({&token, 1}), Next::ready);
  EXPECT_NE(thinking->next({&kThinkEnd, 1}), Next::ready);
}

/// The first masks of four grammars are held up; other sequences get all of theirs meanwhile, and
/// those four once they are there.
TEST(SlowMasks, NobodyWaitsForAFirstMask) {
  std::latch released(1);
  std::vector<std::unique_ptr<SlowConstraint>> held;
  for (int i = 0; i < 4; ++i) {
    const auto grammar = person();
    before_masks(*grammar, [&released] { released.wait(); });
    held.push_back(constraint_of(grammar));
    EXPECT_NE(held.back()->next({}), Next::ready);
  }
  const auto quick = constraint_of(person());
  for (const char c : std::string_view(R"({"name":"Ada Lovelace","age":36})")) {
    wait_for(*quick);
    const auto token = static_cast<int32_t>(c);
    ASSERT_FALSE(quick->accept({&token, 1}));
  }
  for (const auto& each : held) {
    while (each->next({}) == Next::soon) std::this_thread::yield();
    EXPECT_EQ(each->next({}), Next::making);
  }
  released.count_down();
  for (const auto& each : held) {
    wait_for(*each);
    EXPECT_EQ(mask_of(*each), mask_of(*constraint_of(person())));
  }
}

/// The bound is a limit of the compiler.
TEST(SlowMasks, AreThoseOfMoreTimeThanTheBound) {
  for (const auto& [bound, drafts] :
       {std::pair(std::chrono::nanoseconds(0), SlowConstraint::Drafts::alone),
        std::pair(std::chrono::nanoseconds(std::chrono::hours(1)),
                  SlowConstraint::Drafts::taken)}) {
    GrammarCompiler compiler(vocabulary, {.mask_time_max = bound});
    const auto made = constraint_of(compiler.compile(schema(kPerson)).value());
    wait_for(*made);
    EXPECT_EQ(made->drafts(), drafts) << bound.count();
  }
}

/// A sequence that is cancelled leaves while its mask is being made.
TEST(SlowMasks, OutliveTheirSequence) {
  const auto grammar = person();
  for (int round = 0; round < 5; ++round) {
    const auto made = constraint_of(grammar);
    const int32_t token = '{';
    if (round > 2) mark_slow(*grammar);
    ASSERT_FALSE(made->accept({&token, 1}));
    made->next({});
  }
}

}  // namespace
}  // namespace nibble
