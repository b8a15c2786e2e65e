// The modules that a pattern names, under the names of four readers, and those it must not name.
#include "model/config/target_patterns.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/config/module_pattern.h"

namespace nibble {
namespace {

constexpr std::string_view kReaders[] = {"model.language_model.", "language_model.model.", "model.",
                                         "language_model.", ""};

bool any_matches(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    return ModulePattern::compressed_tensors(pattern).value().matches(name);
  });
}

std::string in_file(const std::string& tail) { return "model.language_model." + tail; }

TEST(TargetPatterns, MatchUnderTheNamesOfEveryReaderAndNothingElse) {
  const auto patterns = target_patterns(
      {in_file("layers.0.mlp.experts.3.up_proj"), in_file("layers.11.self_attn.q_proj"), "lm_head"},
      {"mtp.layers.0.self_attn.q_proj", "mtp.fc", "model.visual.blocks.0.attn.qkv"});
  EXPECT_EQ(patterns.size(), 3U);
  for (const std::string_view prefix : kReaders) {
    for (const char* tail : {"layers.7.mlp.experts.255.up_proj", "layers.0.self_attn.q_proj"})
      EXPECT_TRUE(any_matches(patterns, concat(prefix, tail))) << prefix << tail;
    for (const char* tail : {"layers.7.mlp.experts.255.down_proj", "layers.0.mlp.up_proj",
                             "layers.0.self_attn.q_proj.x", "embed_tokens"})
      EXPECT_FALSE(any_matches(patterns, concat(prefix, tail))) << prefix << tail;
  }
  EXPECT_TRUE(any_matches(patterns, "lm_head"));
  EXPECT_TRUE(any_matches(patterns, "language_model.lm_head"));
  for (const char* name : {"mtp.layers.0.self_attn.q_proj", "mtp.layers.0.mlp.experts.0.up_proj",
                           "visual.layers.0.self_attn.q_proj", "model.visual.lm_head",
                           "draft.lm_head", "xlayers.0.self_attn.q_proj"})
    EXPECT_FALSE(any_matches(patterns, name)) << name;
}

TEST(TargetPatterns, LayersAreListedWhereOthersHaveTheShape) {
  const auto patterns =
      target_patterns({in_file("layers.1.self_attn.o_proj"), in_file("layers.12.self_attn.o_proj")},
                      {in_file("layers.2.self_attn.o_proj")});
  ASSERT_EQ(patterns.size(), 1U);
  for (const char* tail : {"layers.1.self_attn.o_proj", "layers.12.self_attn.o_proj"})
    EXPECT_TRUE(any_matches(patterns, concat("language_model.model.", tail))) << tail;
  for (const char* tail : {"layers.2.self_attn.o_proj", "layers.11.self_attn.o_proj"})
    EXPECT_FALSE(any_matches(patterns, concat("language_model.model.", tail))) << tail;
}

TEST(TargetPatterns, ExpertsOfOneLayerThatDisagreeAreNamedOneByOne) {
  const auto patterns = target_patterns(
      {in_file("layers.0.mlp.experts.1.up_proj"), in_file("layers.0.mlp.experts.2.up_proj"),
       in_file("layers.1.mlp.experts.0.up_proj")},
      {in_file("layers.0.mlp.experts.0.up_proj")});
  EXPECT_EQ(patterns.size(), 3U);
  EXPECT_TRUE(any_matches(patterns, "model.layers.1.mlp.experts.9.up_proj"));
  EXPECT_TRUE(any_matches(patterns, "model.layers.0.mlp.experts.2.up_proj"));
  EXPECT_FALSE(any_matches(patterns, "model.layers.0.mlp.experts.0.up_proj"));
  EXPECT_FALSE(any_matches(patterns, "model.layers.0.mlp.experts.21.up_proj"));
}

TEST(TargetPatterns, AListOfExpertsStandsForAllOfThem) {
  const auto stays = target_patterns({in_file("layers.0.mlp.experts")},
                                     {in_file("layers.1.mlp.experts.0.up_proj")});
  EXPECT_TRUE(any_matches(stays, "language_model.model.layers.0.mlp.experts"));
  EXPECT_TRUE(any_matches(stays, "language_model.model.layers.0.mlp.experts.5.down_proj"));
  EXPECT_FALSE(any_matches(stays, "language_model.model.layers.1.mlp.experts.0.up_proj"));
  const auto quantized = target_patterns({in_file("layers.1.mlp.experts.0.up_proj")},
                                         {in_file("layers.0.mlp.experts")});
  EXPECT_FALSE(any_matches(quantized, "model.layers.0.mlp.experts.0.up_proj"));
  EXPECT_TRUE(any_matches(quantized, "model.layers.1.mlp.experts.7.up_proj"));
}

TEST(TargetPatterns, TheMtpLayerHasPatternsOfItsOwn) {
  const auto patterns = target_patterns(
      {"mtp.layers.0.mlp.experts.3.up_proj", "mtp.layers.0.mlp.experts.4.up_proj", "mtp.fc",
       "mtp.layers.0.self_attn.q_proj", "mtp.layers.0.mlp.experts.3.down_proj"},
      {in_file("layers.0.self_attn.q_proj"), "mtp.layers.0.mlp.experts.0.down_proj"});
  EXPECT_EQ(patterns.size(), 4U);
  for (const char* name : {"mtp.layers.0.mlp.experts.255.up_proj", "mtp.fc",
                           "mtp.layers.0.self_attn.q_proj", "mtp.layers.0.mlp.experts.3.down_proj"})
    EXPECT_TRUE(any_matches(patterns, name)) << name;
  for (const char* name :
       {"mtp.layers.0.mlp.experts.0.down_proj", "model.language_model.layers.0.self_attn.q_proj",
        "mtp.fc.x", "model.mtp.fc", "mtp.layers.0.mlp.gate"})
    EXPECT_FALSE(any_matches(patterns, name)) << name;
  const auto list = target_patterns({"mtp.layers.0.mlp.experts"}, {"mtp.fc"});
  EXPECT_TRUE(any_matches(list, "mtp.layers.0.mlp.experts.7.up_proj"));
}

TEST(TargetPatterns, ManyLayersAreSeveralPatternsThatReadersTake) {
  std::vector<std::string> modules;
  for (int layer = 0; layer < 140; ++layer)
    modules.push_back(in_file(concat("layers.", layer, ".self_attn.o_proj")));
  const auto patterns = target_patterns(modules, {in_file("layers.140.self_attn.o_proj")});
  EXPECT_EQ(patterns.size(), 2U);
  for (int layer = 0; layer < 140; layer += 23)
    EXPECT_TRUE(any_matches(patterns, concat("model.layers.", layer, ".self_attn.o_proj")));
  EXPECT_FALSE(any_matches(patterns, "model.layers.140.self_attn.o_proj"));
}

}  // namespace
}  // namespace nibble
