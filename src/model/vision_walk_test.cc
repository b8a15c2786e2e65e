// The work of a tower, by which it is divided between passes: in multiplications and additions.
#include <gtest/gtest.h>

#include "model/backend.h"
#include "model/media_patches.h"
#include "model/vision.h"

namespace nibble {
namespace {

constexpr VisionConfig kConfig{.depth = 3,
                               .hidden = 8,
                               .inner = 16,
                               .heads = 2,
                               .patch = 16,
                               .temporal_patch = 2,
                               .merge = 2,
                               .out = 10};

struct IdleTower : VisionTower {
  void embed_patches(const VisionPiece&) override {}
  void project_patches(int, const VisionPiece&) override {}
  void attend_patches(int, const VisionPiece&) override {}
  void merge_patches(const VisionPiece&) override {}
};

/// A patch of a frame of P costs 2 * 8 * 1536 to embed; in each of three blocks 2 * 8 * 3 * 8 to
/// project and 2 * 8 * (2 P + 8 + 2 * 16) for attention and MLP; and a quarter of
/// 2 * 32 * (32 + 10) to merge.
TEST(VisionWalk, CountsTheWorkOfItsFrames) {
  const MediaPatches small{.grid = {.t = 1, .h = 4, .w = 6}, .levels = {}};
  const MediaPatches large{.grid = {.t = 1, .h = 8, .w = 8}, .levels = {}};
  const auto left = [&](const std::vector<const MediaPatches*>& media) {
    const std::vector<int32_t> places(16);
    std::vector<VisionFrame> frames;
    for (const MediaPatches* each : media)
      frames.push_back(
          {.media = each,
           .places = std::span(places).first(static_cast<size_t>(each->grid.rows(kConfig.merge)))});
    return VisionWalk(kConfig, std::move(frames), 128).left();
  };
  constexpr double kSmall = 24 * (24576 + 3 * (384 + 16 * (48 + 8 + 32)) + 672) * 1e-9;
  constexpr double kLarge = 64 * (24576 + 3 * (384 + 16 * (128 + 8 + 32)) + 672) * 1e-9;
  EXPECT_EQ(left({}), 0.0);
  EXPECT_NEAR(left({&small}), kSmall, 1e-12);
  EXPECT_NEAR(left({&large}), kLarge, 1e-12);
  EXPECT_NEAR(left({&small, &large, &small}), 2 * kSmall + kLarge, 1e-12);
}

TEST(VisionWalk, WhatIsLeftFallsByWhatWasDone) {
  const MediaPatches media{.grid = {.t = 1, .h = 8, .w = 8}, .levels = {}};
  const std::vector<int32_t> places(16);
  VisionWalk walk(kConfig,
                  {{.media = &media, .places = places}, {.media = &media, .places = places}}, 64);
  IdleTower tower;
  const double all = walk.left();
  double done = 0.0;
  while (!walk.done()) {
    done += walk.advance(tower, all / 40);
    EXPECT_NEAR(walk.left(), all - done, 1e-9 * all);
  }
  EXPECT_NEAR(done, all, 1e-9 * all);
  EXPECT_EQ(walk.left(), 0.0);
}

}  // namespace
}  // namespace nibble
