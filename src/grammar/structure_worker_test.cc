// The structure worker leaves nothing open and nobody behind; its children have their limits.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "grammar/test_worker.h"
#include "testing/soon.h"

namespace nibble {
namespace {

using testing::soon;

size_t open_files(const std::string& process) {
  const std::filesystem::path folder = "/proc/" + process + "/fd";
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

/// Neither here nor in the worker stays a socket open, however a compilation ends.
TEST(StructureWorker, LeavesNothingOpen) {
  const auto compiler = with_worker();
  ASSERT_TRUE(compiler->compile(schema(kPerson)).ok());
  const std::string worker = concat(compiler->worker());
  const size_t here = open_files("self");
  size_t there = 0;  // its last socket is closed at some time after the answer
  EXPECT_TRUE(soon([&] { return (there = open_files(worker)) == 3; })) << there;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(compiler->compile(regex(concat("a{1,", i + 2, "}"))).ok());
    EXPECT_FALSE(compiler->compile(regex(concat("(", i))).ok());
    EXPECT_FALSE(compiler->compile(slow_source(i), [] { return true; }).ok());
    GrammarCompiler unable(vocabulary, {}, {"/nonexistent/nibble"});
    EXPECT_FALSE(unable.compile(schema(kPerson)).ok());
  }
  EXPECT_EQ(open_files("self"), here);
  EXPECT_TRUE(soon([&] { return open_files(worker) == there; }));
  { EXPECT_TRUE(with_worker()->compile(schema(kPerson)).ok()); }
  EXPECT_EQ(open_files("self"), here);
}

/// A terminal sends its signals to the server and to the worker, which the server ends.
TEST(StructureWorker, TheWorkerOutlivesTheSignalsOfATerminal) {
  const auto compiler = with_worker();
  ASSERT_TRUE(compiler->compile(schema(kPerson)).ok());
  const pid_t worker = compiler->worker();
  int number = 2;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    ::kill(worker, signal);
    EXPECT_TRUE(compiler->compile(regex(concat("a{1,", number++, "}"))).ok());
    EXPECT_EQ(compiler->worker(), worker) << signal;
  }
}

/// False also for one that has ended and that its parent has not asked for.
bool runs(pid_t process) {
  std::ifstream file(concat("/proc/", process, "/stat"));
  std::string line;
  return std::getline(file, line) && line.find(") Z") == line.npos;
}

/// The worker ends with its compiler.
TEST(StructureWorker, EndsWithItsCompiler) {
  auto compiler = with_worker();
  ASSERT_TRUE(compiler->compile(schema(kPerson)).ok());
  const pid_t worker = compiler->worker();
  EXPECT_TRUE(runs(worker));
  compiler = nullptr;
  EXPECT_FALSE(runs(worker));
}

/// A compilation ends with its worker, however young; the next structure has another worker.
TEST(StructureWorker, NothingOutlivesIt) {
  const auto compiler = with_worker({.time_max = std::chrono::seconds(5'000)});
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    ASSERT_TRUE(compiler->compile(regex(concat("a{1,", i + 2, "}"))).ok());
    const pid_t worker = compiler->worker();
    EXPECT_TRUE(soon([&] { return children_of(worker).empty(); }));
    std::atomic<bool> left = false;
    std::thread client(
        [&] { (void)compiler->compile(slow_source(i), [&] { return left.load(); }); });
    std::vector<pid_t> children;
    EXPECT_TRUE(soon([&] { return (children = children_of(worker)).size() == 1; }));
    ::kill(worker, SIGKILL);
    EXPECT_TRUE(soon([&] { return !runs(children.front()) && !runs(worker); })) << i;
    left = true;
    client.join();
  }
}

/// The most of `what` that a process may use, as the kernel says it.
std::string limit_of(pid_t process, std::string_view what) {
  std::ifstream file(concat("/proc/", process, "/limits"));
  for (std::string line, most; std::getline(file, line);)
    if (line.starts_with(what)) {
      std::istringstream(line.substr(what.size())) >> most;
      return most;
    }
  return "";
}

/// A child that compiles what a stranger wrote can fill no disk, and the kernel ends it should its
/// own clock fail.
TEST(StructureWorker, AChildHasItsLimits) {
  const auto compiler = with_worker({.time_max = std::chrono::seconds(100)});
  ASSERT_TRUE(compiler->compile(schema(kPerson)).ok());
  EXPECT_TRUE(soon([&] { return children_of(compiler->worker()).empty(); }));
  std::atomic<bool> left = false;
  std::thread client([&] { (void)compiler->compile(slow_source(), [&] { return left.load(); }); });
  std::vector<pid_t> children;
  EXPECT_TRUE(soon([&] {
    children = children_of(compiler->worker());
    return children.size() == 1 && limit_of(children[0], "Max file size") == "0";
  }));
  EXPECT_TRUE(soon([&] { return limit_of(children[0], "Max cpu time") == "102"; }));
  EXPECT_EQ(limit_of(children[0], "Max core file size"), "0");
  EXPECT_NE(limit_of(compiler->worker(), "Max file size"), "0");
  // After a while it gives way to others.
  const int own = ::getpriority(PRIO_PROCESS, 0);
  EXPECT_TRUE(soon([&] {
    return ::getpriority(PRIO_PROCESS, static_cast<id_t>(children[0])) == std::min(own + 5, 19);
  }));
  EXPECT_EQ(::getpriority(PRIO_PROCESS, static_cast<id_t>(compiler->worker())), own);
  left = true;
  client.join();
}

}  // namespace
}  // namespace nibble
