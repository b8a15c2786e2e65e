// A constraint whose masks take long: its sequence waits for them, the others do not, and the
// tokens are the same.
#include "base/slow_constraint.h"

#include <gtest/gtest.h>

#include "engine/sample/constraint_chain.h"
#include "engine/testing/core_fixture.h"
#include "engine/testing/held_up.h"

namespace nibble {
namespace {

/// Its masks are ready after so many looks at them, counted anew after each token. A step looks
/// more than once.
class Slow final : public SlowConstraint {
 public:
  explicit Slow(int looks) : looks_(looks), left_(looks) {}
  Next next(std::span<const int32_t>) override { return left_-- > 0 ? Next::making : Next::ready; }
  Drafts drafts() const override { return Drafts::alone; }
  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t>) override {
    EXPECT_LT(left_, 0) << "asked for a mask that is not there";
    EXPECT_TRUE(drafted.empty());
    return MaskState::open;
  }
  std::optional<size_t> accept(std::span<const int32_t>) override {
    left_ = looks_;
    return std::nullopt;
  }
  void rollback(size_t) override {}

 private:
  int looks_;
  int left_;
};

TEST(SlowConstraint, OthersDoNotWaitForItsMasks) {
  CoreFixture fixture;
  std::mt19937 random(3);
  SequenceRequest slow = greedy(1, random_prompt(random, 20), 10);
  SequenceRequest quick = greedy(2, random_prompt(random, 20), 40);
  const std::vector<int32_t> expected = expected_tokens(slow);
  const std::vector<int32_t> others = expected_tokens(quick);
  ConstraintChain::Members members;
  members.push_back(std::make_unique<Slow>(28));
  members.push_back(std::make_unique<Slow>(1));
  slow.constraint = chained(std::move(members));
  fixture.core->submit(std::move(slow));
  fixture.core->submit(std::move(quick));
  while (!fixture.outcomes[2].finished) fixture.take(fixture.core->step());
  EXPECT_LT(fixture.outcomes[1].tokens.size(), 10U);  // it sat out most of the other's passes
  EXPECT_EQ(fixture.outcomes[2].tokens, others);
  fixture.run();
  EXPECT_EQ(fixture.outcomes[1].tokens, expected);
}

TEST(SlowConstraint, OthersWaitAMomentAtMost) {
  CoreFixture fixture;
  std::mt19937 random(5);
  SequenceRequest held = greedy(1, random_prompt(random, 20), 10);
  SequenceRequest quick = greedy(2, random_prompt(random, 20), 40);
  const std::vector<int32_t> expected = expected_tokens(held);
  const std::vector<int32_t> others = expected_tokens(quick);
  bool let = false;
  held.constraint = std::make_unique<HeldUp>(0, let);
  fixture.core->submit(std::move(held));
  fixture.core->submit(std::move(quick));
  int steps = 0;
  for (; !fixture.outcomes[2].finished && steps < 100; ++steps) fixture.take(fixture.core->step());
  EXPECT_TRUE(fixture.outcomes[2].finished);
  EXPECT_LT(steps, 60);  // none of its steps was lost
  EXPECT_EQ(fixture.outcomes[2].tokens, others);
  EXPECT_TRUE(fixture.outcomes[1].tokens.empty());
  let = true;
  fixture.run();
  EXPECT_EQ(fixture.outcomes[1].tokens, expected);
}

}  // namespace
}  // namespace nibble
