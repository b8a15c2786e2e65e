// Frequencies, axes and YaRN against published values (docs/formats.md), hand arithmetic, and what
// transformers computes of the real shapes (tools/oracle/model_rope_golden.py).
#include "model/config/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "model/config/rope_override.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

Json read_json(const std::string& name) {
  const std::string path = concat(NIBBLE_SOURCE_DIR, "/tests/golden/", name);
  return parse_json(read_text_file(path, 1 << 20).value(), path).value();
}

void expect_angles(const RopeTable& table, const Json& golden) {
  const auto pairs = static_cast<size_t>(table.pairs());
  std::vector<float> cos(pairs);
  std::vector<float> sin(pairs);
  for (size_t p = 0; p < golden.find("positions")->as_array().size(); ++p) {
    const auto& axes = golden.find("positions")->as_array()[p].as_array();
    std::array<int32_t, 3> position = {};
    for (size_t a = 0; a < 3; ++a) position[a] = static_cast<int32_t>(axes[a].as_int());
    rope_angles(table, position, cos, sin);
    for (size_t i = 0; i < pairs; ++i) {
      const auto& at = [&](const char* name) {
        return golden.find(name)->as_array()[p].as_array()[i].as_double();
      };
      EXPECT_NEAR(cos[i], at("cos"), 2e-7) << "position " << axes[0].as_int() << ", pair " << i;
      EXPECT_NEAR(sin[i], at("sin"), 2e-7) << "position " << axes[0].as_int() << ", pair " << i;
    }
  }
}

/// The comparison includes two positions beyond the original length.
TEST(Rope, RealShapesAsTransformersHasThem) {
  const Json cases = read_json("rope.json");
  ASSERT_EQ(cases.as_array().size(), 5U);
  for (const Json& golden : cases.as_array()) {
    const std::string change = golden.find("change")->dump();
    const std::string& name = golden.find("config")->as_string();
    SCOPED_TRACE(concat(name, " ", change));
    std::optional<RopeOverride> override;
    if (change != "{}") override = parse_rope_scaling("--rope-scaling", change).value();
    const Json file = read_json(concat("configs/", name, ".json"));
    const ModelConfig config = parse_config(file, override).value();
    const RopeTable table = make_rope_table(config.attention.rope);
    const auto& expected = golden.find("inverse_frequencies")->as_array();
    ASSERT_EQ(table.inverse_frequencies.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(table.inverse_frequencies[i] / expected[i].as_double(), 1.0, 1e-12) << i;
    EXPECT_NEAR(table.scale, golden.find("attention_factor")->as_double(), 1e-12);
    expect_angles(table, golden);
  }
}

TEST(Rope, TextOfATableHasEveryNumber) {
  const RopeConfig config = {.theta = 1e7, .rotary_dims = 64, .mrope_section = {11, 11, 10}};
  RopeTable table = make_rope_table(config);
  const std::string text = rope_text(table);
  EXPECT_EQ(rope_text(make_rope_table(config)), text);
  table.scale = 1.0000000000000002;
  EXPECT_NE(rope_text(table), text);
  table = make_rope_table(config);
  table.inverse_frequencies[31] = std::nextafter(table.inverse_frequencies[31], 1.0);
  EXPECT_NE(rope_text(table), text);
}

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

/// Both ends of the correction range fall on pair 0: every later pair is interpolated in full.
TEST(Rope, YarnOfAnEmptyRange) {
  RopeConfig config = large_model();
  config.yarn = YarnConfig{.factor = 4.0, .original_max_positions = 6};
  const RopeTable table = make_rope_table(config);
  const RopeTable plain = make_rope_table(large_model());
  EXPECT_DOUBLE_EQ(table.inverse_frequencies[0], plain.inverse_frequencies[0]);
  for (size_t i = 1; i < 32; ++i)
    EXPECT_DOUBLE_EQ(table.inverse_frequencies[i], plain.inverse_frequencies[i] / 4) << i;
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
