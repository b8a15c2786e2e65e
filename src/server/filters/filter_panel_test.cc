// The time that a panel gives its filters, without a server.
#include "server/filters/filter_panel.h"

#include <gtest/gtest.h>

#include <deque>
#include <thread>

namespace nibble {
namespace {

class SilentFilter final : public OutputFilter {
 public:
  std::string_view name() const override { return "silent"; }
  void ask(Question, Answer) override {}
};

/// After a machine stood still a look is due at once, but its filters had no time either.
TEST(FilterPanel, APauseOfTheMachineIsOneLook) {
  std::deque<std::function<void()>> looks;
  FilterOptions options;
  options.filters = {std::make_shared<SilentFilter>()};
  options.timeout = std::chrono::milliseconds(80);  // eight times the period of looks
  FilterPanel panel(options, {.post = [](const std::function<void()>&) { FAIL(); },
                              .post_after =
                                  [&](std::chrono::milliseconds, std::function<void()> look) {
                                    looks.push_back(std::move(look));
                                  }});
  bool failed = false;
  panel.judge(options.filters, {FilterPlace::content, "x"},
              [&](FilterVerdict verdict) { failed = verdict == FilterVerdict::failed; });
  std::this_thread::sleep_for(2 * options.timeout);
  int count = 0;
  for (; !looks.empty(); ++count) {
    const auto look = std::move(looks.front());
    looks.pop_front();
    look();
  }
  EXPECT_TRUE(failed);
  EXPECT_EQ(count, 9);
}

}  // namespace
}  // namespace nibble
