// NUMA nodes as the system lists them, and the line about them.
#include "backend/cpu/processors.h"

#include <gtest/gtest.h>

#include <array>

#include "testing/test_files.h"

namespace nibble::cpu {
namespace {

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

TEST(Processors, MoreThanOneNodeIsSaid) {
  const TemporaryFolder root;
  std::filesystem::create_directory(root / "node0");
  write_test_file(root / "node0/cpulist", "0-1023\n");
  EXPECT_EQ(numa_notice(root.path()), "");
  std::filesystem::create_directory(root / "node1");
  write_test_file(root / "node1/cpulist", "0-1023\n");
  EXPECT_EQ(numa_notice(root.path()),
            "the cores are of 2 NUMA nodes, and most reads will cross between them; to stay on "
            "one, start the program with numactl --cpunodebind=0 --membind=0\n");
}

}  // namespace
}  // namespace nibble::cpu
