// Wishes that this machine cannot fulfil are refused before a model is opened.
#include "cli/serving/processor_check.h"

#include <gtest/gtest.h>

#include <array>

#include "base/thread_pool.h"
#include "cli/serving/model_loader.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

std::string refusal(const BackendOptions& options) {
  const TemporaryFolder root;  // without a model in it
  const auto model = load_model({.folder = root / "none", .backend = "cpu", .options = options});
  return model.ok() ? "" : model.error().message;
}

TEST(ProcessorCheck, MoreThreadsThanCoresAreRefused) {
  const int cores = usable_cores();
  EXPECT_EQ(refusal({.threads = cores + 1}), concat("--threads: expected at most ", cores,
                                                    ", the cores that this process may use, found ",
                                                    cores + 1, "; leave it out to use them all"));
  EXPECT_TRUE(check_processors({.threads = cores}).ok());
  EXPECT_TRUE(check_processors({}).ok());
}

TEST(ProcessorCheck, AnInstructionSetThatTheMachineLacksIsRefused) {
  const std::string message = refusal({.isa = "mmx"});
  EXPECT_TRUE(message.starts_with("instruction set: expected ")) << message;
  EXPECT_TRUE(message.ends_with("scalar, found mmx")) << message;
}

TEST(ProcessorCheck, NodesOfOwnCoresAreCounted) {
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
}  // namespace nibble
