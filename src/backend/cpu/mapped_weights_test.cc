// Weights that are read in mapped files: the bits of copied ones, what counts as memory, and files
// that are broken or change.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "backend/cpu/mapped_fixture.h"
#include "backend/cpu/random_weights.h"
#include "testing/tiny_checkpoint.h"

namespace nibble {
namespace {

class MappedWeights : public cpu::MappedFixture {
 protected:
  MappedWeights() : MappedFixture(TinyCheckpoint::moe().config) {}
  bool routed_in_four_bits() const {
    return GetParam() == WeightLayout::mixed || GetParam() == WeightLayout::nvfp4;
  }
};

TEST_P(MappedWeights, GiveTheBitsOfCopiedOnes) {
  const auto copied = loaded(WeightPlace::copied);
  const auto automatic = loaded(WeightPlace::automatic);
  const auto mapped = loaded(WeightPlace::mapped);
  const std::vector<float> expected = logits(*copied);
  EXPECT_GT(*std::ranges::max_element(expected), 0.0F);
  EXPECT_TRUE(cpu::same_bits(logits(*automatic), expected));
  EXPECT_TRUE(cpu::same_bits(logits(*mapped), expected));
}

TEST_P(MappedWeights, AreCountedAsTheSameBytes) {
  const auto copied = loaded(WeightPlace::copied);
  const auto automatic = loaded(WeightPlace::automatic);
  const auto mapped = loaded(WeightPlace::mapped);
  const int64_t all = copied->reserved_bytes()->weights;
  EXPECT_EQ(copied->host_weights()->mapped, 0);
  EXPECT_EQ(copied->host_weights()->copied, all);
  for (Backend* backend : {automatic.get(), mapped.get()}) {
    const HostWeights weights = backend->host_weights().value();
    EXPECT_EQ(weights.copied + weights.mapped, all);
    EXPECT_EQ(backend->reserved_bytes()->weights, all);
    EXPECT_GT(weights.routed_mapped, 0);
    EXPECT_FALSE(weights.streamed);
  }
  // Two layers, two experts, three matrices of 256 x 256, in 4.5 bits.
  if (routed_in_four_bits()) {
    EXPECT_EQ(automatic->host_weights()->routed_mapped, 12 * 256 * 256 * 9 / 16);
  }
  EXPECT_GT(mapped->host_weights()->mapped, automatic->host_weights()->mapped);
}

TEST_P(MappedWeights, MoreThanTheMemoryAreRefusedOrStreamed) {
  const auto automatic = loaded(WeightPlace::automatic);
  const HostWeights whole = automatic->host_weights().value();
  const std::vector<float> expected = logits(*automatic);
  BackendOptions options{.host_memory_bytes = whole.copied + whole.mapped / 2};
  const auto refused = load(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::no_memory);
  EXPECT_NE(refused.error().message.find("(--stream-weights)"), std::string::npos)
      << refused.error().message;
  options.beyond_memory = BeyondMemory::streamed;
  const auto streamed = load(options).value();
  EXPECT_TRUE(streamed->host_weights()->streamed);
  EXPECT_TRUE(cpu::same_bits(logits(*streamed), expected));
  // The copied ones must fit, streamed or not.
  options.host_memory_bytes = 1000;
  const auto too_little = load(options);
  ASSERT_FALSE(too_little.ok());
  EXPECT_EQ(too_little.error().message.find("--stream-weights"), std::string::npos);
}

TEST_P(MappedWeights, OfAFileThatChangesEndTheBackendLoudly) {
  const auto backend = loaded(WeightPlace::automatic);
  EXPECT_TRUE(backend->alive().ok());
  backend->outlive_device();
  std::filesystem::resize_file(weight_file(), 4096);
  logits(*backend);
  const Result<void> alive = backend->alive();
  ASSERT_FALSE(alive.ok());
  EXPECT_NE(alive.error().message.find("was changed while its weights were in use"),
            std::string::npos);
}

/// All bits set are NaN in block scales, E4M3 and BF16.
TEST_P(MappedWeights, ThatAreNotSoundAreRefused) {
  uint64_t at = 0;
  {
    const Checkpoint checkpoint = Checkpoint::open(folder_).value();
    for (const TensorEntry& entry : checkpoint.entries()) {
      const bool numbers = entry.dtype == DType::f8_e4m3 || entry.dtype == DType::bf16;
      if (at == 0 && numbers && entry.name.find(".experts.") != std::string::npos &&
          entry.name.find("down_proj") != std::string::npos)
        at = entry.offset + 76;
    }
  }
  ASSERT_GT(at, 0U);
  std::fstream file(weight_file(), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  file.write("\xFF\xFF", 2);
  file.close();
  const auto refused = load({});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::corrupt);
  EXPECT_NE(refused.error().message.find("down_proj: expected finite weights"), std::string::npos)
      << refused.error().message;
}

INSTANTIATE_TEST_SUITE_P(Layouts, MappedWeights, cpu::stored_layouts(), cpu::layout_name);

}  // namespace
}  // namespace nibble
