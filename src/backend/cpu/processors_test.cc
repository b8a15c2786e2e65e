// Wishes that this machine cannot fulfil are refused before anything is read.
#include "backend/cpu/processors.h"

#include <gtest/gtest.h>

#include <array>

#include "base/thread_pool.h"
#include "testing/test_files.h"

namespace nibble::cpu {
namespace {

TEST(Processors, MoreThreadsThanCoresAreRefused) {
  const int cores = usable_cores();
  EXPECT_EQ(
      check_processors("", cores + 1).error().message,
      concat("--threads: expected at most ", cores, ", the cores that this process may use, found ",
             cores + 1, "; leave it out to use them all"));
  EXPECT_TRUE(check_processors("", cores).ok());
  EXPECT_TRUE(check_processors("", 0).ok());
}

TEST(Processors, AnInstructionSetThatTheMachineLacksIsRefused) {
  const std::string message = check_processors("mmx", 1).error().message;
  EXPECT_TRUE(message.starts_with("instruction set: expected ")) << message;
  EXPECT_TRUE(message.ends_with("scalar, found mmx")) << message;
}

TEST(Processors, NodesOfOwnCoresAreCounted) {
  const TemporaryFolder root;
  const std::array cores = {0, 1, 9};
  EXPECT_EQ(numa_nodes(cores, root / "absent"), 1);
  for (const char* folder : {"node0", "node1", "node2", "node3", "memory"})
    std::filesystem::create_directory(root / folder);
  write_test_file(root / "node0/cpulist", "0-3,12-15\n");
  write_test_file(root / "node1/cpulist", "4-7,9\n");
  write_test_file(root / "node2/cpulist", "10-11,16\n");
  write_test_file(root / "node3/cpulist", "\n");  // memory alone
  write_test_file(root / "memory/cpulist", "0-16\n");
  EXPECT_EQ(numa_nodes(cores, root.path()), 2);
  EXPECT_EQ(numa_nodes(std::array{0, 2, 15}, root.path()), 1);
  EXPECT_EQ(numa_nodes(std::array{3, 7, 16}, root.path()), 3);
}

}  // namespace
}  // namespace nibble::cpu
