// Lines and refusals about where weights lie; the loading itself:
// backend/cpu/mapped_weights_test.cc.
#include "cli/loading/weight_places.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "testing/tiny_checkpoint.h"

namespace nibble {
namespace {

TEST(StreamedBytes, AreTheMissingShareOfTheExpertsThatATokenMeets) {
  const MoeConfig moe = {.experts = 256, .top_k = 8};
  HostWeights weights = {.mapped = 20000, .routed_mapped = 16000};
  EXPECT_DOUBLE_EQ(streamed_bytes_per_token(weights, moe, 0), 500.0);
  EXPECT_DOUBLE_EQ(streamed_bytes_per_token(weights, moe, 5000), 375.0);
  EXPECT_DOUBLE_EQ(streamed_bytes_per_token(weights, moe, 20000), 0.0);
  EXPECT_DOUBLE_EQ(streamed_bytes_per_token({}, moe, 0), 0.0);
}

TEST(WeightPlaces, FlagsThatNothingCanFollowAreRefused) {
  const BackendOptions automatic;
  const BackendOptions mapped = {.weights = WeightPlace::mapped};
  const BackendOptions streamed = {.beyond_memory = BeyondMemory::streamed};
  const BackendOptions both = {.weights = WeightPlace::copied,
                               .beyond_memory = BeyondMemory::streamed};
  EXPECT_TRUE(check_weight_places(automatic, "the cuda backend").ok());
  EXPECT_TRUE(check_weight_places(mapped, "").ok());
  EXPECT_TRUE(check_weight_places(streamed, "").ok());
  EXPECT_EQ(
      check_weight_places(mapped, "the cuda backend").error().message,
      "--weights mapped: expected --backend cpu and a checkpoint whose files are mapped, found "
      "the cuda backend; leave one of the flags out");
  EXPECT_EQ(
      check_weight_places(streamed, "random weights").error().message,
      "--stream-weights: expected --backend cpu and a checkpoint whose files are mapped, found "
      "random weights; leave one of the flags out");
  EXPECT_EQ(
      check_weight_places(both, "").error().message,
      "--stream-weights: expected --backend cpu and a checkpoint whose files are mapped, found "
      "--weights copied; leave one of the flags out");
}

TEST(WeightPlaces, AreToldWithTheSpeedOfStreaming) {
  const auto folder =
      std::filesystem::path(testing::TempDir()) / concat("weight_places_", ::getpid());
  std::filesystem::remove_all(folder);
  TinyCheckpoint::moe().write(folder);
  const Checkpoint checkpoint = Checkpoint::open(folder).value();
  const ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  HostWeights weights;
  const auto lines = [&](int64_t memory) {
    return weight_places_notice({weights, config, checkpoint, memory}).value();
  };
  EXPECT_EQ(lines(0), "");
  weights = {.mapped = 999'999'999};
  EXPECT_EQ(lines(0), "");
  weights = {.copied = 598'000'000, .mapped = 4'637'000'000, .routed_mapped = 3'600'000'000};
  EXPECT_EQ(lines(0),
            "weights: 4637 MB are read in the checkpoint's mapped files (page cache, shared by "
            "processes), 598 MB were copied\n");
  weights.streamed = true;
  const std::string streaming = lines(2'000'000'000);
  EXPECT_NE(streaming.find("which holds 2000 MB of them; a token reads about 1024 MB of experts "
                           "from the disk"),
            std::string::npos)
      << streaming;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace nibble
