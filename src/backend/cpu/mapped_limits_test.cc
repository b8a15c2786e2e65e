// Mapped weights and the memory of the machine, to the byte; how their pages are read ahead; and a
// file that changes while it is loaded.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "backend/cpu/mapped_fixture.h"
#include "backend/cpu/weight_sum.h"
#include "testing/tiny_checkpoint.h"

namespace nibble {
namespace {

class MappedLimits : public cpu::MappedFixture {
 protected:
  MappedLimits() : MappedFixture(TinyCheckpoint::moe().config) {}
};

/// Copied matrices must fit to the byte; mapped ones beside them need not, if they may be streamed.
TEST_P(MappedLimits, FitOrDoNotToTheByte) {
  const auto automatic = loaded(WeightPlace::automatic);
  const Checkpoint checkpoint = Checkpoint::open(folder_).value();
  const Weights weights = Weights::bind(checkpoint, config_).value();
  const int64_t matrices = cpu::WeightSum(weights).matrices();
  const int64_t copied = matrices - automatic->host_weights()->mapped;
  const auto streamed_with = [&](int64_t memory, BeyondMemory beyond) -> std::optional<bool> {
    const auto made = load({.host_memory_bytes = memory, .beyond_memory = beyond});
    if (!made.ok()) return {};
    return made.value()->host_weights()->streamed;
  };
  EXPECT_EQ(streamed_with(matrices, BeyondMemory::refused), false);
  EXPECT_EQ(streamed_with(matrices, BeyondMemory::streamed), false);
  EXPECT_EQ(streamed_with(matrices - 1, BeyondMemory::refused), std::nullopt);
  EXPECT_EQ(streamed_with(matrices - 1, BeyondMemory::streamed), true);
  EXPECT_EQ(streamed_with(copied, BeyondMemory::streamed), true);
  EXPECT_EQ(streamed_with(copied - 1, BeyondMemory::streamed), std::nullopt);
}

/// Linux says of each mapping ("rr") if it reads nothing beyond what is asked for.
TEST_P(MappedLimits, AreReadAtRandomOnlyWhereTheyAreStreamed) {
  const auto at_random = [&] {
    std::ifstream maps("/proc/self/smaps");
    bool of_file = false;
    for (std::string line; std::getline(maps, line);) {
      const bool names_a_field = line.substr(0, line.find(' ')).ends_with(':');
      if (!names_a_field) of_file = line.find(weight_file().string()) != std::string::npos;
      if (of_file && line.starts_with("VmFlags"))
        return line.find(" rr ") != std::string::npos ? "yes" : "no";
    }
    return "not mapped";
  };
  {
    const auto automatic = loaded(WeightPlace::automatic);
    EXPECT_STREQ(at_random(), "no");
  }
  const HostWeights whole = loaded(WeightPlace::automatic)->host_weights().value();
  const auto streamed = load({.host_memory_bytes = whole.copied + whole.mapped / 2,
                              .beyond_memory = BeyondMemory::streamed});
  ASSERT_TRUE(streamed.ok());
  EXPECT_STREQ(at_random(), "yes");
}

TEST_P(MappedLimits, OfAFileThatChangesWhileItIsReadAreRefused) {
  BackendOptions options{.weights = WeightPlace::mapped};
  options.loading = [&](int64_t done, int64_t total) {
    if (done == total)
      std::filesystem::resize_file(weight_file(), std::filesystem::file_size(weight_file()) + 1);
  };
  const auto refused = load(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::corrupt);
  EXPECT_NE(refused.error().message.find("was changed while its weights were in use"),
            std::string::npos)
      << refused.error().message;
}

INSTANTIATE_TEST_SUITE_P(Mixed, MappedLimits, testing::Values(WeightLayout::mixed),
                         cpu::layout_name);

}  // namespace
}  // namespace nibble
