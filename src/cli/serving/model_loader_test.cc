// The MTP layer is loaded where it is wanted and sound; where it is not, one line says so and the
// model is loaded without it.
#include "cli/serving/model_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "model/synthetic/synthetic_checkpoint.h"
#include "testing/source_dir.h"
#include "testing/test_files.h"
#include "testing/tiny_checkpoint.h"

namespace nibble {
namespace {

class DraftLayerOf : public testing::Test {
 protected:
  LoadedModel load(DraftLayer layer, const char* backend = "cpu") {
    auto model = load_model({.folder = folder_ / "model",
                             .backend = backend,
                             .options = {.threads = 1},
                             .draft_layer = layer});
    EXPECT_TRUE(model.ok()) << model.error().message;
    return std::move(model).value();
  }
  static Json config(int mtp_layers) {
    Json config = TinyCheckpoint::moe().config;
    Json text = *config.find("text_config");
    text.set("mtp_num_hidden_layers", mtp_layers);
    config.set("text_config", std::move(text));
    return config;
  }
  TemporaryFolder folder_;
};

TEST_F(DraftLayerOf, ASoundCheckpointIsLoadedWhereItIsWanted) {
  write_synthetic_checkpoint(config(1), folder_ / "model", {}).value();
  for (const char* backend : {"cpu", "reference"}) {
    const LoadedModel with = load(DraftLayer::wanted, backend);
    EXPECT_TRUE(with.backend->drafts()) << backend;
    EXPECT_EQ(with.config.draft_layers, 1);
    EXPECT_EQ(with.notice, "");
    const LoadedModel without = load(DraftLayer::unused, backend);
    EXPECT_FALSE(without.backend->drafts()) << backend;
    EXPECT_EQ(without.config.draft_layers, 0);
    EXPECT_LT(without.weight_bytes, with.weight_bytes);
  }
}

TEST_F(DraftLayerOf, RandomWeightsHaveOneToo) {
  std::filesystem::create_directory(folder_ / "model");
  std::ofstream(folder_ / "model" / "config.json") << config(1).dump();
  const auto model = load_model({.folder = folder_ / "model",
                                 .backend = "cpu",
                                 .dummy = "bf16",
                                 .options = {.threads = 1},
                                 .draft_layer = DraftLayer::wanted});
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_TRUE(model.value().backend->drafts());
}

TEST_F(DraftLayerOf, ACheckpointWithoutOneIsLoadedWithALine) {
  write_synthetic_checkpoint(config(0), folder_ / "model", {}).value();
  const LoadedModel model = load(DraftLayer::wanted);
  EXPECT_FALSE(model.backend->drafts());
  EXPECT_EQ(model.notice, "the checkpoint has no MTP layer: answers are made without drafts\n");
}

TEST_F(DraftLayerOf, ABrokenOneCostsItsDraftsAndIsNamed) {
  TinyCheckpoint tiny = TinyCheckpoint::moe();  // of its layer it has fc alone
  tiny.write(folder_ / "model");
  const LoadedModel model = load(DraftLayer::wanted);
  EXPECT_FALSE(model.backend->drafts());
  EXPECT_EQ(model.config.draft_layers, 0);
  EXPECT_NE(model.notice.find("without drafts of the MTP layer: "), std::string::npos);
  EXPECT_NE(model.notice.find("mtp.pre_fc_norm_embedding.weight"), std::string::npos)
      << model.notice;
  EXPECT_EQ(std::ranges::count(model.notice, '\n'), 1);
}

Result<LoadedModel> load_with_tower(const std::filesystem::path& folder, const char* backend,
                                    TowerUse use,
                                    const std::optional<std::string>& dummy = std::nullopt) {
  return load_model({.folder = folder,
                     .backend = backend,
                     .dummy = dummy,
                     .rope = {},
                     .options = {.threads = 1},
                     .tower = use});
}

TEST(ModelLoader, AsksForInstructionsBeforeAFolderIsRead) {
  const Error refusal =
      load_model({.folder = "absent", .backend = "cpu", .options = {.isa = "mmx"}}).error();
  EXPECT_TRUE(refusal.message.starts_with("instruction set: expected ")) << refusal.message;
}

TEST(ModelLoader, TheVisionTowerIsLoadedWhereItIsWanted) {
  const auto pebble = std::filesystem::path(NIBBLE_SOURCE_DIR) / "pebble" / "model";
  const LoadedModel without = load_with_tower(pebble, "cpu", TowerUse::unused).value();
  EXPECT_FALSE(without.config.vision);
  for (const char* backend : {"cpu", "reference"}) {
    const LoadedModel with = load_with_tower(pebble, backend, TowerUse::wanted).value();
    ASSERT_TRUE(with.config.vision) << backend;
    EXPECT_EQ(with.config.vision->depth, 3);
    EXPECT_FALSE(with.backend->has_vision()) << "before reserve()";
    EXPECT_GT(with.weight_bytes, without.weight_bytes);
    const PoolSizes sizes{
        .pages = 1, .state_slots = 1, .rows_max = 65, .media_rows = 16, .vision_rows = 64};
    ASSERT_TRUE(with.backend->reserve(sizes).ok());
    EXPECT_TRUE(with.backend->has_vision()) << backend;
    if (const auto held = with.backend->reserved_bytes())
      EXPECT_EQ(held->media, with.backend->media_bytes(sizes));
  }
  const LoadedModel random = load_with_tower(pebble, "cpu", TowerUse::wanted, "bf16").value();
  EXPECT_TRUE(random.config.vision);
}

TEST(ModelLoader, ACheckpointWithoutItsTowerServesText) {
  const auto folder = std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/golden/model/moe-fused";
  const LoadedModel model = load_with_tower(folder, "cpu", TowerUse::wanted).value();
  EXPECT_FALSE(model.config.vision);
  EXPECT_EQ(model.notice, "images are not taken: the checkpoint has no vision tower\n");
}

}  // namespace
}  // namespace nibble
