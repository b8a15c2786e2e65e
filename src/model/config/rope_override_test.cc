// Rotary settings from flags: what they replace, what stays, and what is refused.
#include "model/config/rope_override.h"

#include <gtest/gtest.h>

#include "model/config/rope.h"
#include "testing/published_config.h"

namespace nibble {
namespace {

constexpr std::string_view kYarn = R"({"rope_type":"yarn","factor":4})";

ModelConfig changed(const Json& file, std::string_view text) {
  const RopeOverride change = parse_rope_scaling("--rope-scaling", text).value();
  const auto config = parse_config(file, change);
  CHECK(config.ok(), config.error().message);
  return config.value();
}

TEST(RopeOverride, KeysThatAreNotNamedStay) {
  const ModelConfig config = changed(published_config("qwen3.6-35b-a3b"), kYarn);
  const RopeConfig& rope = config.attention.rope;
  EXPECT_EQ(rope.theta, 1e7);
  EXPECT_EQ(rope.rotary_dims, 64);
  EXPECT_EQ(rope.mrope_section, (std::array<int, 3>{11, 11, 10}));
  ASSERT_TRUE(rope.yarn);
  EXPECT_EQ(rope.yarn->factor, 4);
  EXPECT_EQ(rope.yarn->original_max_positions, 262144);
  EXPECT_EQ(config.max_positions, 1048576);
}

TEST(RopeOverride, NoneLeavesTheFileAsItIs) {
  const Json file = published_config("qwen3.6-35b-a3b");
  EXPECT_EQ(parse_config(file, std::nullopt).value().max_positions, 262144);
}

TEST(RopeOverride, ReplacesWhereverTheFileHasIt) {
  Json legacy =
      published_config("qwen3-30b-a3b");  // flat, with rope_theta beside rope_scaling null
  const ModelConfig config =
      changed(legacy, R"({"type":"yarn","factor":2,"rope_theta":5e6,)"
                      R"("original_max_position_embeddings":40960,"partial_rotary_factor":0.5})");
  EXPECT_EQ(config.attention.rope.theta, 5e6);
  EXPECT_EQ(config.attention.rope.rotary_dims, 64);
  EXPECT_EQ(config.max_positions, 81920);

  Json both = published_config("qwen3.6-35b-a3b");
  const Json rope = *both.find("text_config")->find("rope_parameters");
  both.find("text_config")->set("rope_scaling", rope);
  EXPECT_EQ(changed(both, kYarn).max_positions, 1048576);

  Json outside = published_config("qwen3.6-35b-a3b");  // the settings beside text_config
  std::erase_if(outside.find("text_config")->as_object(),
                [](const Json::Member& member) { return member.key == "rope_parameters"; });
  outside.set("rope_parameters", rope);
  EXPECT_EQ(changed(outside, kYarn).attention.rope.theta, 1e7);
  EXPECT_EQ(changed(outside, kYarn).max_positions, 1048576);
}

TEST(RopeOverride, TurnsYarnOff) {
  Json file = published_config("qwen3.6-35b-a3b");
  Json& rope = *file.find("text_config")->find("rope_parameters");
  rope.set("type", "yarn");  // an older spelling of rope_type
  std::erase_if(rope.as_object(), [](const auto& member) { return member.key == "rope_type"; });
  rope.set("factor", 4);
  EXPECT_EQ(parse_config(file, std::nullopt).value().max_positions, 1048576);
  EXPECT_EQ(changed(file, R"({"rope_type":"default"})").max_positions, 262144);
}

TEST(RopeOverride, VllmsForms) {
  const Json file = published_config("qwen3.6-35b-a3b");
  const std::string expected = rope_text(make_rope_table(changed(file, kYarn).attention.rope));
  for (const std::string& text :
       {concat(R"({"rope_parameters":)", kYarn, "}"), concat(R"({"rope_scaling":)", kYarn, "}"),
        concat(R"({"text_config":{"rope_parameters":)", kYarn, "}}"),
        concat(R"({"text_config":{"rope_scaling":)", kYarn, "}}")}) {
    const auto change = parse_config_overrides("--hf-overrides", text);
    ASSERT_TRUE(change.ok()) << change.error().message;
    const ModelConfig config = parse_config(file, change.value()).value();
    EXPECT_EQ(rope_text(make_rope_table(config.attention.rope)), expected) << text;
    EXPECT_EQ(config.max_positions, 1048576);
  }
}

void expect_one_line(const Error& error, std::string_view words) {
  EXPECT_EQ(error.code, ErrorCode::invalid_argument) << error.message;
  EXPECT_NE(error.message.find(words), std::string::npos) << error.message;
  EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
}

TEST(RopeOverride, BadTextIsRefusedByName) {
  struct Row {
    std::string_view text;
    std::string_view words;
  };
  const Row scaling[] = {
      {"", "--rope-scaling"},
      {"{", "--rope-scaling"},
      {"[1]", "expected a JSON object, found array"},
      {"{}", "found none"},
      {R"({"factr":4})", R"(unknown key "factr")"},
      {R"({"a\nb":4})", R"(unknown key "a\nb")"},
      {R"({"factor":4,"factor":2})", "--rope-scaling"},
  };
  for (const Row& row : scaling)
    expect_one_line(parse_rope_scaling("--rope-scaling", row.text).error(), row.words);
  const Row overrides[] = {
      {"7", "expected a JSON object, found integer"},
      {"{}", "found none"},
      {R"({"text_config":{}})", "found none"},
      {R"({"hidden_size":4})", R"(--hf-overrides: key "hidden_size")"},
      {R"({"text_config":{"num_experts":4}})", R"(key "text_config.num_experts")"},
      {R"({"text_config":4})", R"(key "text_config")"},
      {R"({"text_config":{"text_config":{}}})", R"(key "text_config.text_config")"},
      {R"({"rope_parameters":4})", "rope_parameters: expected an object, found integer"},
      {R"({"rope_parameters":{"x":4}})", R"(unknown key rope_parameters."x")"},
  };
  for (const Row& row : overrides)
    expect_one_line(parse_config_overrides("--hf-overrides", row.text).error(), row.words);
  const std::string long_text(70000, ' ');
  expect_one_line(parse_rope_scaling("--rope-scaling", long_text).error(), "--rope-scaling");
}

TEST(RopeOverride, ValuesAreHeldToTheFilesBounds) {
  const Json file = published_config("qwen3.6-35b-a3b");
  struct Row {
    std::string_view text;
    std::string_view words;
  };
  const Row rows[] = {
      {R"({"rope_type":"llama3"})", R"(expected "default" or "yarn", found "llama3")"},
      {R"({"rope_type":"yarn","factor":0.5})", "factor: expected a number in 1..10000"},
      {R"({"rope_type":"yarn","factor":"4"})", "factor"},
      {R"({"mrope_section":[1,2]})", "3 integers"},
      {R"({"partial_rotary_factor":2})", "partial_rotary_factor"},
  };
  for (const Row& row : rows) {
    const auto config = parse_config(file, parse_rope_scaling("--rope-scaling", row.text).value());
    ASSERT_FALSE(config.ok()) << row.text;
    EXPECT_TRUE(config.error().message.starts_with("with --rope-scaling: "))
        << config.error().message;
    EXPECT_NE(config.error().message.find(row.words), std::string::npos) << config.error().message;
  }
}

}  // namespace
}  // namespace nibble
