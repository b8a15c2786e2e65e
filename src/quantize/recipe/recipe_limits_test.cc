// A recipe is read up to its limits, and not beyond.
#include <gtest/gtest.h>

#include "base/concat.h"
#include "quantize/recipe/recipe.h"

namespace nibble {
namespace {

constexpr std::string_view kHead = "name: n\nstatus: lab\n";

/// Values at the limits are read, and so is all that a rule may say beside its weights.
TEST(RecipeLimits, AreTheLastValuesThatPass) {
  const auto rule = [](std::string_view match, std::string_view more) {
    return concat("  - match: ", match, "\n    weights: nvfp4\n", more);
  };
  const auto scaled = [&](std::string_view scale) {
    const auto read = parse_recipe(
        concat(kHead, "rules:\n",
               rule("x", concat("    activations: nvfp4\n    input_scale: ", scale, "\n"))),
        "r");
    return read.ok() ? read.value().rules[0].gives.input_scale : 0.0F;
  };
  EXPECT_EQ(scaled("6.338253001141147e+29"), 0x1p99F);
  EXPECT_EQ(scaled("1.2676506002282294e+30"), 0.0F);
  EXPECT_EQ(scaled("3.944304526105059e-31"), 0x1p-101F);
  EXPECT_EQ(scaled("1.9721522630525295e-31"), 0.0F);
  EXPECT_EQ(scaled("0"), 0.0F);
  const auto rules = [&](size_t count) {
    std::string text = concat(kHead, "about: words\nrules:\n");
    for (size_t i = 0; i < count; ++i) text += rule("x", "");
    const auto read = parse_recipe(text, "r");
    return read.ok() ? concat(read.value().rules.size(), " rules") : read.error().message;
  };
  EXPECT_EQ(rules(kRecipeRulesMax), "1000 rules");
  EXPECT_EQ(rules(kRecipeRulesMax + 1), "r line 5: \"rules\": expected at most 1000, found 1001");
  const std::string longest(kRecipePatternMax, 'x');
  const Recipe read =
      parse_recipe(concat(kHead, "about: words\nrules:\n", rule(longest, "    optional: true\n"),
                          rule("y", "    optional: false\n    activations: high\n"), rule("z", "")),
                   "r")
          .value();
  EXPECT_EQ(read.about, "words");
  EXPECT_EQ(read.status, RecipeStatus::lab);
  EXPECT_EQ(read.find(longest), 0);
  EXPECT_EQ(
      (std::vector<bool>{read.rules[0].optional, read.rules[1].optional, read.rules[2].optional}),
      (std::vector<bool>{true, false, false}));
  EXPECT_EQ(read.rules[1].gives.scheme.activations, ActivationFormat::high);
  EXPECT_EQ((std::vector<int>{read.rules[0].line, read.rules[1].line, read.rules[2].line}),
            (std::vector<int>{5, 8, 12}));
  const std::string sound = concat(kHead, "rules:\n", rule("x", ""), "#");
  EXPECT_TRUE(parse_recipe(sound + std::string(kRecipeBytesMax - sound.size(), 'x'), "r").ok());
  const auto endless = parse_recipe("name: n\nstatus: " + std::string(2000, 'k') + "\n", "r");
  ASSERT_FALSE(endless.ok());
  EXPECT_EQ(endless.error().message.size(), 403U) << "cut after 400 characters";
  EXPECT_TRUE(endless.error().message.ends_with("k..."));
}

}  // namespace
}  // namespace nibble
