// Whom Ctrl-C reaches.
#include "cli/terminal.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace nibble {
namespace {

volatile std::sig_atomic_t reached = 0;

TEST(InterruptFlag, HoldsAsLongAsItLives) {
  const auto live = [] {  // in a process of its own: the flag stays set
    std::signal(SIGINT, [](int) { reached = 1; });
    {
      const InterruptFlag flag;
      std::raise(SIGINT);
      if (!interrupted() || reached != 0) std::_Exit(1);
    }
    std::raise(SIGINT);
    std::_Exit(reached != 0 ? 0 : 2);
  };
  EXPECT_EXIT(live(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace nibble
