// Rotary settings of a config.json: what is taken where nothing is said, and how far each number
// may go.
#include "model/config/rope_config.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nibble {
namespace {

constexpr RopeContext kContext = {
    .head_dim = 256, .default_rotary_factor = 0.25, .multi_axis = true, .max_positions = 262144};

Result<RopeConfig> read(const std::string& text, const RopeContext& context = kContext) {
  const Json json = parse_json(text, "test").value();
  return parse_rope(ConfigSection(json, "file: "), context);
}
/// With more members of rope_parameters.
Result<RopeConfig> read_with(const std::string& members) {
  return read(concat(R"({"rope_parameters":{"rope_theta":1e4,)", members, "}}"));
}
Result<RopeConfig> read_yarn(const std::string& members) {
  return read_with(concat(R"("rope_type":"yarn",)", members));
}
YarnConfig yarn(const std::string& members) { return read_yarn(members).value().yarn.value(); }

void expect_error(const Result<RopeConfig>& result, std::string_view words) {
  ASSERT_FALSE(result.ok()) << words;
  EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
}

TEST(RopeConfig, SaysWhatIsTakenWhereTheFileIsSilent) {
  const RopeConfig config = read(R"({"rope_theta":1e4})").value();
  EXPECT_EQ(config.theta, 1e4);
  EXPECT_EQ(config.rotary_dims, 64);
  EXPECT_EQ(config.mrope_section, (std::array<int, 3>{11, 11, 10}));
  EXPECT_FALSE(config.yarn);
  EXPECT_EQ(config.notice, "");
  const YarnConfig silent = yarn(R"("type":null)");
  EXPECT_EQ(silent.factor, 1.0);
  EXPECT_EQ(silent.original_max_positions, 262144.0);
  EXPECT_EQ(silent.beta_fast, 32.0);
  EXPECT_EQ(silent.beta_slow, 1.0);
  EXPECT_TRUE(silent.truncate);
  EXPECT_EQ(silent.attention_factor, 1.0);
}

struct Limit {
  const char* key;
  const char* low;
  const char* below;
  const char* high;
  const char* above;
  const char* beside = "";  // members that it needs
};

constexpr Limit kLimits[] = {
    {"factor", "1", "0.99", "1e4", "10001"},
    {"beta_fast", "1", "-1", "1e6", "1000001"},
    {"beta_slow", "0", "-0.5", "1e6", "1000001", R"("beta_fast":1e6,)"},
    {"attention_factor", "1e-3", "9e-4", "1e3", "1001"},
    {"mscale", "0", "-0.5", "1e3", "1001"},
    {"mscale_all_dim", "0", "-0.5", "1e3", "1001"},
    {"original_max_position_embeddings", "1", "0.5", "1e9", "1000000001", R"("factor":2,)"},
    {"partial_rotary_factor", "0.0078125", "-0.25", "1", "1.25"},
    {"mrope_section", "[0,0,0]", "[11,-1,10]", "[4096,4096,4096]", "[11,11,4097]"},
};

TEST(RopeConfig, NumbersMayGoToTheirLimitsAndNotBeyond) {
  for (const Limit& limit : kLimits) {
    const auto with = [&](const char* value) {
      return read_yarn(concat(limit.beside, "\"", limit.key, "\":", value));
    };
    for (const char* value : {limit.low, limit.high})
      EXPECT_TRUE(with(value).ok())
          << limit.key << " " << value << ": " << with(value).error().message;
    for (const char* value : {limit.below, limit.above}) expect_error(with(value), limit.key);
  }
  for (const char* theta : {"1.5", "1e12"})
    EXPECT_TRUE(read(concat(R"({"rope_theta":)", theta, "}")).ok()) << theta;
  for (const char* theta : {"1.25", "1.5e12"})
    expect_error(read(concat(R"({"rope_theta":)", theta, "}")), "rope_theta: expected a number");
}

TEST(RopeConfig, YarnTakesTheRatioOfPositionsForItsFactor) {
  EXPECT_EQ(yarn(R"("original_max_position_embeddings":65536)").factor, 4.0);
  EXPECT_EQ(yarn(R"("original_max_position_embeddings":524288)").factor, 1.0);
  EXPECT_EQ(yarn(R"("original_max_position_embeddings":65536,"factor":8)").factor, 8.0);
}

TEST(RopeConfig, YarnsBetas) {
  EXPECT_EQ(yarn(R"("beta_fast":0)").beta_fast, 32.0);
  EXPECT_EQ(yarn(R"("beta_slow":0)").beta_slow, 1.0);
  EXPECT_EQ(yarn(R"("beta_fast":3,"beta_slow":3)").beta_slow, 3.0);
  expect_error(read_yarn(R"("beta_fast":3,"beta_slow":3.5)"), "at least beta_slow 3.5, found 3");
}

/// Equation 22 of the YaRN paper, of the two scales if both are there.
TEST(RopeConfig, YarnsAttentionFactor) {
  const double by_factor = 0.1 * std::log(4.0);
  EXPECT_DOUBLE_EQ(yarn(R"("factor":4)").attention_factor, by_factor + 1.0);
  EXPECT_DOUBLE_EQ(yarn(R"("factor":4,"mscale":2)").attention_factor, by_factor + 1.0);
  EXPECT_DOUBLE_EQ(yarn(R"("factor":4,"mscale_all_dim":2)").attention_factor, by_factor + 1.0);
  EXPECT_DOUBLE_EQ(yarn(R"("factor":4,"mscale":2,"mscale_all_dim":3)").attention_factor,
                   (2.0 * by_factor + 1.0) / (3.0 * by_factor + 1.0));
  EXPECT_EQ(yarn(R"("factor":4,"attention_factor":1.75)").attention_factor, 1.75);
}

TEST(RopeConfig, RotaryDimensionsAreEvenAndTwoOrMore) {
  EXPECT_EQ(read_with(R"("partial_rotary_factor":0.0078125)").value().rotary_dims, 2);
  expect_error(read_with(R"("partial_rotary_factor":0.00390625)"), "an even number of dimensions");
  expect_error(read_with(R"("partial_rotary_factor":0)"), "an even number of dimensions");
  expect_error(read_with(R"("partial_rotary_factor":0.25390625)"), "an even number");  // 65
}

TEST(RopeConfig, ANumberInBothPlacesIsTheSame) {
  const auto both = [](const char* inner, const char* outer) {
    return read(
        concat(R"({"rope_theta":)", outer, R"(,"rope_parameters":{"rope_theta":)", inner, "}}"));
  };
  EXPECT_EQ(both("1e5", "1e5").value().theta, 1e5);
  expect_error(both("1e5", "1e6"),
               "file: rope_theta: expected 1e+05 as in file: "
               "rope_parameters.rope_theta, found 1e+06");
  EXPECT_TRUE(read(R"({"rope_theta":5,"rope_scaling":{},"rope_parameters":{}})").ok());
  expect_error(read(R"({"rope_theta":5,"rope_scaling":{"factor":2},"rope_parameters":{}})"),
               "both, not equal");
}

TEST(RopeConfig, RefusesWhatItDoesNotKnow) {
  expect_error(read_with(R"("low_freq_factor":2)"), "unknown key");
  expect_error(read_with(R"("rope_type":"linear")"), "found \"linear\"");
  expect_error(read_with(R"("type":"linear")"), "rope_parameters.type");
  expect_error(read_with(R"("mrope_interleaved":false)"), "interleaved");
  expect_error(read_with(R"("mrope_section":[11,11])"), "3 integers (t, h, w)");
  RopeContext one_axis = kContext;
  one_axis.multi_axis = false;
  const std::string section = R"({"rope_parameters":{"rope_theta":5,"mrope_section":[1,1,1]}})";
  expect_error(read(section, one_axis), "no multi-axis rope in this family");
  EXPECT_EQ(read(R"({"rope_theta":5})", one_axis).value().mrope_section, (std::array<int, 3>{}));
}

}  // namespace
}  // namespace nibble
