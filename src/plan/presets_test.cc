// Presets by name and part of a name; each is a model that this program reads.
#include "plan/presets.h"

#include <gtest/gtest.h>

#include "model/config/config.h"

namespace nibble {
namespace {

TEST(Presets, EachIsAModel) {
  ASSERT_GE(builtin_presets().size(), 7U);
  for (const BuiltinPreset& preset : builtin_presets()) {
    EXPECT_TRUE(ModelConfig::parse(preset_config(preset)).ok()) << preset.name;
    EXPECT_EQ(find_preset(preset.name), &preset);
    EXPECT_NE(known_presets().find(preset.name), std::string::npos);
  }
}

TEST(Presets, AreFoundByAPart) {
  EXPECT_EQ(find_preset("35b-a3b")->name, "qwen3.6-35b-a3b");
  EXPECT_EQ(find_preset("Qwen3.6-27B")->name, "qwen3.6-27b");
  EXPECT_EQ(find_preset("9b")->name, "qwen3.5-9b");
  for (const char* text : {"", "b", "qwen3.5", "35", "a3b", "70b", "-", "27b-"})
    EXPECT_EQ(find_preset(text), nullptr) << text;
}

}  // namespace
}  // namespace nibble
