// The table of a pass: launches that are alike become one line, bytes are added up by kind.
#include "backend/cuda/runtime/launch_log.h"

#include <gtest/gtest.h>

namespace nibble::cuda {
namespace {

struct TextPlan {
  std::string name;
  std::string text() const { return name; }
};

TEST(LaunchLogTest, AddsUpWhatIsAlike) {
  LaunchLog log;
  Launcher launcher;
  launcher.log = &log;
  log_launch(launcher.of(Step::project), TextPlan{"row fp8"}, {.weights = 1'000'000'000});
  log_launch(launcher.of(Step::recur), TextPlan{"stream"}, {.states = 250'000'000});
  log_launch(launcher.of(Step::project), TextPlan{"row fp8"}, {.weights = 234'000'000});
  log_launch(launcher.of(Step::attend), TextPlan{"mma.sync"}, {.kv_tokens = 2048});
  log_launch(launcher.of(Step::route), TextPlan{"one block"}, {});
  log_launch(Launcher(), TextPlan{"no log, no line"}, {});
  EXPECT_EQ(log.table("a pass of 1 generated row"),
            "  a pass of 1 generated row: 1.23 GB of weights, 0.25 GB of states, 2048 bytes of KV "
            "cache a token of context\n"
            "    project       2 x row fp8; 1.23 GB of weights\n"
            "    recur         1 x stream; 0.25 GB of states\n"
            "    attend        1 x mma.sync; 2048 bytes of KV cache a token of context\n"
            "    route         1 x one block\n");
}

TEST(LaunchLogTest, KeepsStepsApart) {
  LaunchLog log;
  log.add(Step::gate_up, "row", {.weights = 1});
  log.add(Step::down, "row", {.weights = 2});
  ASSERT_EQ(log.lines().size(), 2U);
  EXPECT_EQ(log.lines()[1].bytes.weights, 2);
}

}  // namespace
}  // namespace nibble::cuda
