// Whatever comes, in whatever small pools: somebody always advances, everybody ends, and every
// schedule can be carried out (SimulatedEngine CHECKs it). The proof is in docs/scheduling.md.
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "engine/testing/fairness_simulation.h"

namespace nibble {
namespace {

class RandomLife {
 public:
  explicit RandomLife(uint32_t seed) : random_(seed) {
    pages_ = pick(8, 60);
    const SchedulerLimits limits{.rows_max = 64 + 6 + pick(0, 500),
                                 .sequences_max = pick(1, 6),
                                 .chunk_tokens_max = pick(0, 2) * 100,
                                 .reserve_tokens = pick(0, 3) * 64,
                                 .step_ms = pick(0, 1) == 0 ? 75.0 : 16.0};
    const bool host = pick(0, 3) > 0;
    pools_ = {.pages = pages_,
              .state_slots = limits.sequences_max + pick(0, 1),
              .host_pages = host ? pick(1, 2 * pages_) : 0,
              .host_slots = host ? pick(1, 6) : 0};
    scheduler_.emplace(limits, CostModel());
    engine_.emplace(*scheduler_, pools_, [this](const PassShape& s) { return truth_.ms(s); });
  }

  /// Submits for a while, then lets everything end.
  SimulationCounts live() {
    int submitted = 0;
    int finished = 0;
    int64_t passes = 0;
    const int count = pick(1, 40);
    const auto on_token = [](const SimulatedSequence&, double) {};
    const auto on_finished = [&](const SimulatedSequence&) { ++finished; };
    while (finished < count) {
      for (int burst = pick(0, 9) == 0 ? 5 : 1; burst > 0 && submitted < count && pick(0, 3) == 0;
           --burst, ++submitted)
        submit();
      const bool advanced = engine_->step(on_token, on_finished);
      if (!advanced && !engine_->live().empty()) {
        ADD_FAILURE() << "nobody advances";
        break;
      }
      if (++passes > 200000) {
        ADD_FAILURE() << "no end";
        break;
      }
    }
    return engine_->counts();
  }

 private:
  int32_t pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }
  void submit() {
    const int32_t tokens = pages_ * kPageTokens;
    const int32_t prompt = pick(1, pick(0, 3) == 0 ? tokens - 1 : tokens / 4);
    const int32_t most = std::min(tokens - prompt + 1, pick(0, 1) == 0 ? 400 : tokens);
    const int32_t max_tokens = pick(1, most);
    engine_->submit({.prompt = prompt,
                     .output = pick(std::max(1, max_tokens / 2), max_tokens),
                     .max_tokens = max_tokens,
                     .tenant = static_cast<uint64_t>(pick(0, 2)),
                     .priority = pick(0, 9) == 0 ? pick(-1, 1) : 0});
  }

  std::mt19937 random_;
  int32_t pages_ = 0;
  FreeResources pools_;
  CostModel truth_;
  std::optional<Scheduler> scheduler_;
  std::optional<SimulatedEngine> engine_;
};

TEST(SchedulerProgress, EverybodyEndsInAnyPools) {
  SimulationCounts sum;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    const SimulationCounts counts = RandomLife(seed).live();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    sum.passes += counts.passes, sum.swaps_out += counts.swaps_out;
    sum.resumes += counts.resumes, sum.restarts += counts.restarts, sum.stalls += counts.stalls;
  }
  // The rare paths were walked.
  EXPECT_GE(sum.swaps_out, 300);
  EXPECT_EQ(sum.resumes, sum.swaps_out);
  EXPECT_GE(sum.restarts, 300);
  EXPECT_GE(sum.stalls, 10000);
}

}  // namespace
}  // namespace nibble
