// The work of a tower, by which it is divided between passes: in multiplications and additions.
#include <gtest/gtest.h>

#include "model/media_patches.h"
#include "model/vision.h"

namespace nibble {
namespace {

/// A patch of a frame of P costs 2 * 8 * 1536 to embed; in each of three blocks 2 * 8 * 3 * 8 to
/// project and 2 * 8 * (2 P + 8 + 2 * 16) for attention and MLP; and a quarter of
/// 2 * 32 * (32 + 10) to merge.
TEST(VisionWalk, CountsTheWorkOfItsFrames) {
  const VisionConfig config{.depth = 3,
                            .hidden = 8,
                            .inner = 16,
                            .heads = 2,
                            .patch = 16,
                            .temporal_patch = 2,
                            .merge = 2,
                            .out = 10};
  const MediaPatches small{.grid = {.t = 1, .h = 4, .w = 6}, .levels = {}};
  const MediaPatches large{.grid = {.t = 1, .h = 8, .w = 8}, .levels = {}};
  const auto left = [&](const std::vector<const MediaPatches*>& media) {
    const std::vector<int32_t> places(16);
    std::vector<VisionFrame> frames;
    for (const MediaPatches* each : media)
      frames.push_back(
          {.media = each,
           .places = std::span(places).first(static_cast<size_t>(each->grid.rows(config.merge)))});
    return VisionWalk(config, std::move(frames), 128).left();
  };
  constexpr double kSmall = 24 * (24576 + 3 * (384 + 16 * (48 + 8 + 32)) + 672) * 1e-9;
  constexpr double kLarge = 64 * (24576 + 3 * (384 + 16 * (128 + 8 + 32)) + 672) * 1e-9;
  EXPECT_EQ(left({}), 0.0);
  EXPECT_NEAR(left({&small}), kSmall, 1e-12);
  EXPECT_NEAR(left({&large}), kLarge, 1e-12);
  EXPECT_NEAR(left({&small, &large, &small}), 2 * kSmall + kLarge, 1e-12);
}

}  // namespace
}  // namespace nibble
