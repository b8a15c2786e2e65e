// Programs that are started: what they are given and what they are not.
#include "base/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

namespace nibble {
namespace {

/// The output of a shell's script, and how it ended by waitpid's count.
std::pair<std::string, int> output_of(const char* script, ChildProcess child = {}) {
  std::array<int, 2> ends = {};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  child.words = {"sh", "-c", script};
  child.output = ends[1];
  const StartedProcess started = start_process(child);
  ::close(ends[1]);
  EXPECT_EQ(started.error, 0);
  std::string text;
  for (char c = 0; ::read(ends[0], &c, 1) == 1;) text += c;
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(started.number, &status, 0), started.number);
  return {text, status};
}

TEST(StartProcess, GivesStandardDescriptorsAlone) {
  const int kept = ::open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  ASSERT_GT(kept, 2);
  EXPECT_EQ(output_of("ls /proc/$$/fd").first, "0\n1\n2\n");
  ::close(kept);
}

TEST(StartProcess, HasTheEnvironmentThatIsSaid) {
  ::setenv("NIBBLE_TEST_WORD", "here", 1);
  EXPECT_EQ(output_of("echo $NIBBLE_TEST_WORD").first, "here\n");
  EXPECT_EQ(output_of("echo $NIBBLE_TEST_WORD$OTHER",
                      {.environment = std::vector<std::string>{"OTHER=there"}})
                .first,
            "there\n");
}

TEST(StartProcess, HasAGroupOfItsOwnUnlessItIsShared) {
  const char* script = "ps -o pgid= -p $$ 2>/dev/null || cut -d ' ' -f 5 /proc/$$/stat";
  EXPECT_NE(std::stoi(output_of(script).first), ::getpgrp());
  EXPECT_EQ(std::stoi(output_of(script, {.group = ChildProcess::Group::shared}).first),
            ::getpgrp());
}

TEST(StartProcess, SignalsAreAsAFreshProgramHasThem) {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  const int status = output_of("kill -PIPE $$; echo lives").second;
  std::signal(SIGPIPE, before);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGPIPE);
}

TEST(StartProcess, SaysWhyThereIsNone) {
  const StartedProcess started = start_process({.words = {"/no/such/program"}});
  EXPECT_EQ(started.error, ENOENT);
  EXPECT_EQ(started.number, -1);
}

TEST(StartProcess, RefusesADescriptorThatIsNone) {
  const StartedProcess started = start_process({.words = {"true"}, .output = -1});
  EXPECT_EQ(started.error, EBADF);
  EXPECT_EQ(started.number, -1);
}

TEST(StartProcess, MayHaveAnotherNameThanItsProgram) {
  std::array<int, 2> ends = {};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const StartedProcess started =
      start_process({.words = {"other", "-c", "echo $0"}, .program = "/bin/sh", .output = ends[1]});
  ::close(ends[1]);
  std::string text;
  for (char c = 0; ::read(ends[0], &c, 1) == 1;) text += c;
  ::close(ends[0]);
  ::waitpid(started.number, nullptr, 0);
  EXPECT_EQ(text, "other\n");
}

}  // namespace
}  // namespace nibble
