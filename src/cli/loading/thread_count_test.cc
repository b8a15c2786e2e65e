// More threads than cores are refused in one line.
#include "cli/loading/thread_count.h"

#include <gtest/gtest.h>

#include <array>

#include "base/thread_pool.h"

namespace nibble {
namespace {

constexpr std::array kOptions = {kThreadsOption};
const Verb kProbe = {.name = "probe",
                     .positionals = "",
                     .summary = "a verb for this test",
                     .options = kOptions,
                     .run = [](const Arguments&, Terminal&) -> Result<int> { return 0; }};

Result<int> read(const std::vector<std::string>& words) {
  const EnvironmentLookup nothing = [](const std::string&) -> std::optional<std::string> {
    return std::nullopt;
  };
  return read_threads(parse_arguments(kProbe, words, nothing).value());
}

TEST(ThreadCount, NoneAndZeroAreAllCores) {
  EXPECT_EQ(read({}).value(), usable_cores());
  EXPECT_EQ(read({"--threads", "0"}).value(), usable_cores());
  EXPECT_EQ(read({"--threads", "1"}).value(), 1);
  EXPECT_EQ(read({"--threads", concat(usable_cores())}).value(), usable_cores());
}

TEST(ThreadCount, MoreThanTheCoresAreRefused) {
  const int cores = usable_cores();
  EXPECT_EQ(
      read({"--threads", concat(cores + 1)}).error().message,
      concat("--threads: expected at most ", cores, ", the cores that this process may use, found ",
             cores + 1, "; leave it out to use them all"));
  EXPECT_FALSE(read({"--threads", "-1"}).ok());
}

}  // namespace
}  // namespace nibble
