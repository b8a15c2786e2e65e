// Frequencies, axes and YaRN against published values (docs/formats.md) and hand arithmetic.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nibble {
namespace {

RopeConfig large_model() {
  return {.theta = 1e7, .rotary_dims = 64, .mrope_section = {11, 11, 10}};
}

TEST(Rope, DefaultFrequencies) {
  const RopeTable table = make_rope_table(large_model());
  ASSERT_EQ(table.pairs(), 32);
  EXPECT_EQ(table.inverse_frequencies[0], 1.0);
  EXPECT_NEAR(table.inverse_frequencies[16], 3.162278e-4, 1e-10);
  EXPECT_NEAR(table.inverse_frequencies[31], 1.654817e-7, 1e-13);
  EXPECT_EQ(table.scale, 1.0);
}

TEST(Rope, InterleavedAxes) {
  const RopeTable table = make_rope_table(large_model());
  std::array<int, 3> counts = {};
  for (int i = 0; i < 32; ++i) {
    const int axis = table.axes[static_cast<size_t>(i)];
    ++counts[static_cast<size_t>(axis)];
    EXPECT_EQ(axis, i % 3 == 2 && i >= 30 ? 0 : i % 3) << i;
  }
  EXPECT_EQ(counts, (std::array<int, 3>{11, 11, 10}));
}

TEST(Rope, PlainRopeHasOneAxis) {
  const RopeTable table = make_rope_table({.theta = 1e6, .rotary_dims = 128});
  for (const uint8_t axis : table.axes) EXPECT_EQ(axis, 0);
}

TEST(Rope, Yarn) {
  RopeConfig config = large_model();
  config.yarn =
      YarnConfig{.factor = 4.0, .original_max_positions = 262144, .attention_factor = 1.138629};
  const RopeTable table = make_rope_table(config);
  const RopeTable plain = make_rope_table(large_model());
  for (size_t i = 0; i < 32; ++i) {
    const double share = plain.inverse_frequencies[i] / table.inverse_frequencies[i];
    if (i <= 14) {
      EXPECT_DOUBLE_EQ(share, 1.0) << i;
    }
    if (i >= 22) {
      EXPECT_DOUBLE_EQ(share, 4.0) << i;
    }
  }
  EXPECT_NEAR(table.inverse_frequencies[16], 2.569351e-4, 1e-10);
  EXPECT_NEAR(table.inverse_frequencies[31], 4.137043e-8, 1e-14);
  EXPECT_EQ(table.scale, 1.138629);
}

TEST(Rope, YarnWithoutTruncation) {
  RopeConfig config = large_model();
  config.yarn = YarnConfig{.factor = 4.0, .original_max_positions = 262144, .truncate = false};
  const double low = 64 * std::log(262144 / (32 * 2 * M_PI)) / (2 * std::log(1e7));
  const double high = 64 * std::log(262144 / (2 * M_PI)) / (2 * std::log(1e7));
  const double ramp = (16 - low) / (high - low);
  EXPECT_NEAR(make_rope_table(config).inverse_frequencies[16],
              3.16227766e-4 * (1 - ramp + ramp / 4), 1e-12);
}

TEST(Rope, AnglesFollowTheirAxis) {
  const RopeTable table = make_rope_table(large_model());
  std::array<float, 32> cos = {};
  std::array<float, 32> sin = {};
  rope_angles(table, {1000000, 7, 3}, cos, sin);
  EXPECT_EQ(sin[0], static_cast<float>(std::sin(1e6)));
  EXPECT_EQ(sin[1], static_cast<float>(std::sin(7 * std::pow(1e7, -1.0 / 32))));
  EXPECT_EQ(cos[2], static_cast<float>(std::cos(3 * std::pow(1e7, -2.0 / 32))));
}

}  // namespace
}  // namespace nibble
