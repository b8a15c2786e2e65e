// Rotary positions of prompts with media, and the tower's facts in config.json.
#include "model/media_patches.h"

#include <gtest/gtest.h>

#include "model/config/vision_config.h"
#include "testing/published_config.h"

namespace nibble {
namespace {

using Positions = std::vector<std::array<int32_t, 3>>;

TEST(MediaPositions, TextAloneCounts) {
  EXPECT_EQ(media_positions(3, {}, 2), (Positions{{0, 0, 0}, {1, 1, 1}, {2, 2, 2}}));
}

TEST(MediaPositions, AGridCountsByItsLongerEdge) {
  // Two tokens, an image of 2 x 3 rows, a token, an image of 1 x 1, a token.
  const PlacedGrid grids[] = {{.begin = 2, .grid = {1, 4, 6}}, {.begin = 9, .grid = {1, 2, 2}}};
  const Positions expected = {{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {2, 2, 3}, {2, 2, 4}, {2, 3, 2},
                              {2, 3, 3}, {2, 3, 4}, {5, 5, 5}, {6, 6, 6}, {7, 7, 7}};
  EXPECT_EQ(media_positions(11, grids, 2), expected);
}

TEST(MediaPositions, PiecesOfAVideoBeginAnew) {
  const PlacedGrid grids[] = {{.begin = 0, .grid = {1, 2, 4}}, {.begin = 3, .grid = {1, 2, 4}}};
  const Positions expected = {{0, 0, 0}, {0, 0, 1}, {2, 2, 2}, {3, 3, 3}, {3, 3, 4}};
  EXPECT_EQ(media_positions(5, grids, 2), expected);
}

TEST(MediaPositions, FramesCountAlongTime) {
  const PlacedGrid grids[] = {{.begin = 0, .grid = {3, 2, 2}}};
  const Positions expected = {{0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {1, 1, 1}};
  EXPECT_EQ(media_positions(4, grids, 2), expected);
}

TEST(MediaPatches, FitTheTowerAndTheirTokens) {
  const VisionConfig vision{.hidden = 8, .patch = 2, .temporal_patch = 2, .merge = 2};
  MediaPatches media{.grid = {1, 4, 6}, .levels = std::vector<uint8_t>(size_t{24} * 24)};
  EXPECT_TRUE(check_patches(media, vision, 6).ok());
  EXPECT_EQ(check_patches(media, vision, 5).error().message,
            "placeholder tokens of media: expected 6 for 1 x 4 x 6 patches, found 5");
  media.levels.pop_back();
  EXPECT_EQ(check_patches(media, vision, 6).error().message,
            "media patches: expected 576 levels for 1 x 4 x 6 patches, found 575");
  const MediaGrid wrong[] = {{0, 4, 6}, {1, 3, 8}, {1, 4, 5}, {1, 4, -6}, {1, 4, 1 << 15}};
  for (const MediaGrid& grid : wrong) {
    media.grid = grid;
    EXPECT_EQ(check_patches(media, vision, 6).error().message.find("a media grid: expected"), 0U);
  }
}

TEST(VisionConfig, RealShapes) {
  const auto vision =
      VisionConfig::parse(published_config("qwen3.6-35b-a3b"), 2048, 248320).value().value();
  EXPECT_EQ(vision.depth, 27);
  EXPECT_EQ(vision.hidden, 1152);
  EXPECT_EQ(vision.inner, 4304);
  EXPECT_EQ(vision.head_dim(), 72);
  EXPECT_EQ(vision.patch_values(), 1536);
  EXPECT_EQ(vision.merged_width(), 4608);
  EXPECT_EQ(vision.table_side, 48);
  EXPECT_EQ(vision.out, 2048);
  EXPECT_EQ(vision.image_token, 248056);
  EXPECT_EQ(vision.video_token, 248057);
  EXPECT_EQ(VisionConfig::parse(published_config("qwen3.5-4b"), 2560, 248320).value()->hidden,
            1024);
  EXPECT_FALSE(VisionConfig::parse(published_config("qwen3-30b-a3b"), 2048, 151936).value());
}

struct BadCase {
  std::string_view section;  // empty: the top
  std::string_view key;
  std::string_view value;
  std::string_view message;
};

const BadCase kBadCases[] = {
    {"vision_config", "depth", "0", "vision_config.depth: expected an integer in 1..256, found 0"},
    {"vision_config", "depth", "null", "vision_config.depth"},
    {"vision_config", "depth", "257", "1..256"},
    {"vision_config", "hidden_size", "1150", "num_heads 16 times a multiple of 4, found 1150"},
    {"vision_config", "hidden_size", "65600", "hidden_size"},
    {"vision_config", "num_heads", "0", "num_heads"},
    {"vision_config", "intermediate_size", "\"4304\"", "intermediate_size"},
    {"vision_config", "in_channels", "4", "in_channels: expected an integer in 3..3, found 4"},
    {"vision_config", "patch_size", "65", "patch_size"},
    {"vision_config", "temporal_patch_size", "0", "temporal_patch_size"},
    {"vision_config", "spatial_merge_size", "9", "spatial_merge_size"},
    {"vision_config", "num_position_embeddings", "2305", "a square number, found 2305"},
    {"vision_config", "hidden_act", "\"silu\"", "hidden_act: expected \"gelu_pytorch_tanh\""},
    {"vision_config", "deepstack_visual_indexes", "[8]", "expected [], found [8]"},
    {"vision_config", "out_hidden_size", "3584", "hidden_size 2048, found 3584"},
    {"", "image_token_id", "null", "image_token_id"},
    {"", "video_token_id", "248320", "video_token_id: expected an integer in 0..248319"},
    {"", "vision_config", "[]", "vision_config"},
};

TEST(VisionConfig, RefusesByKey) {
  for (const BadCase& bad : kBadCases) {
    Json config = published_config("qwen3.6-35b-a3b");
    Json* section = bad.section.empty() ? &config : config.find(bad.section);
    section->set(bad.key, parse_json(bad.value, "test").value());
    const auto parsed = VisionConfig::parse(config, 2048, 248320);
    ASSERT_FALSE(parsed.ok()) << bad.key << " " << bad.value;
    EXPECT_NE(parsed.error().message.find(bad.message), std::string::npos)
        << parsed.error().message;
    EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace nibble
