// The CPU backend holds the bytes that a model's shapes make of its weights and of the workspace of
// its vision tower.
#include <gtest/gtest.h>

#include "backend/cpu/context.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/weight_sum.h"
#include "testing/golden_checks.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

class CpuAccount : public testing::TestWithParam<std::string> {
 protected:
  Golden golden_ = load_golden(GetParam());
};

TEST_P(CpuAccount, WeightsAreThoseOfTheSources) {
  const auto backend = make_cpu_backend(golden_.weights, golden_.config, {.threads = 1}).value();
  EXPECT_EQ(backend->reserved_bytes()->weights, cpu::WeightSum(golden_.weights).bytes());
}

/// A rotary table has a frequency of 8 bytes and an axis of 1 byte for each pair of dimensions.
TEST_P(CpuAccount, TablesAreThoseOfTheRotaryDimensions) {
  const auto backend = make_cpu_backend(golden_.weights, golden_.config, {.threads = 1}).value();
  const int64_t pairs = golden_.config.attention.rope.rotary_dims / 2;
  EXPECT_EQ(backend->reserved_bytes()->tables, golden_.config.kv_layers() > 0 ? 9 * pairs : 0);
}

std::vector<std::string> names() {
  std::vector<std::string> all = golden_names();
  for (const auto& more : {mtp_golden_names(), quantized_golden_names()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, CpuAccount, testing::ValuesIn(names()), [](const auto& test) {
  const bool mtp = test.param.starts_with("model-mtp");
  return concat(golden_test_name(test.param), mtp ? "_mtp" : "");
});

/// A model with its vision tower.
struct Tower {
  explicit Tower(const std::string& folder)
      : checkpoint(Checkpoint::open(std::filesystem::path(NIBBLE_SOURCE_DIR) / folder).value()),
        config(ModelConfig::parse(checkpoint.config()).value()) {
    config.vision =
        VisionConfig::parse(checkpoint.config(), config.hidden, config.vocab_rows).value();
    weights = Weights::bind(checkpoint, config).value();
    backend = make_cpu_backend(weights, config, {.threads = 1}).value();
  }
  Checkpoint checkpoint;
  ModelConfig config;
  Weights weights;
  std::unique_ptr<Backend> backend;
};

TEST(CpuTowerAccount, WeightsAndWorkspaceAreThoseOfTheShapes) {
  for (const char* folder : {"tests/golden/vision/tiny", "pebble/model"}) {
    SCOPED_TRACE(folder);
    Tower tower(folder);
    EXPECT_EQ(tower.backend->reserved_bytes()->weights, cpu::WeightSum(tower.weights).bytes());
    EXPECT_FALSE(tower.backend->has_vision());
    const VisionConfig& v = *tower.config.vision;
    const int64_t patches = 2 * int64_t{kVisionPage};
    const int64_t media_rows = 11;
    const PoolSizes sizes{.pages = 1,
                          .state_slots = 1,
                          .rows_max = 4,
                          .media_rows = static_cast<int32_t>(media_rows),
                          .vision_rows = patches};
    const int64_t piece = kVisionPieceRows;
    const int64_t merged = piece / (int64_t{v.merge} * v.merge);
    const int64_t merged_width = int64_t{v.hidden} * v.merge * v.merge;
    int64_t bytes = 0;
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
             {patches, v.hidden},                // the residual stream
             {patches, v.hidden / v.heads / 2},  // cosines
             {patches, v.hidden / v.heads / 2},  // and sines
             {patches, v.hidden},                // queries
             {media_rows, v.out},                // what comes of it
             {piece, v.patch_values()},          // levels of colours
             {piece, v.hidden},
             {piece, 3 * v.hidden},  // normed; queries, keys, values
             {piece, v.hidden},
             {piece, v.inner},  // attention; in the MLP
             {merged, merged_width},
             {merged, merged_width},  // of several patches
             {merged, v.out}})
      bytes += cpu::Matrix::bytes_of(rows, columns);
    bytes += patches * 2 * v.hidden * 4;  // keys and values
    bytes += patches / kVisionPage * 4;   // numbers of their pages
    EXPECT_EQ(tower.backend->media_bytes(sizes), bytes);
    ASSERT_TRUE(tower.backend->reserve(sizes).ok());
    EXPECT_EQ(tower.backend->reserved_bytes()->media, bytes);
    EXPECT_TRUE(tower.backend->has_vision());
    const PoolSizes none{.pages = 1, .state_slots = 1, .rows_max = 4};
    EXPECT_EQ(tower.backend->media_bytes(none), 0);
    ASSERT_TRUE(tower.backend->reserve(none).ok());
    EXPECT_EQ(tower.backend->reserved_bytes()->media, 0);
    EXPECT_FALSE(tower.backend->has_vision());
  }
}

}  // namespace
}  // namespace nibble
