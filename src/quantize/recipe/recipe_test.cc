// Recipes: the built-in ones read, bad ones are refused with line and advice, the last match wins.
#include "quantize/recipe/recipe.h"

#include <gtest/gtest.h>

#include "quantize/testing/test_model.h"

namespace nibble {
namespace {

constexpr std::string_view kHead = "name: n\nstatus: lab\n";

TEST(Recipe, BuiltinOnesRead) {
  std::vector<std::string_view> names;
  for (const auto& builtin : builtin_recipes()) {
    const auto recipe = load_recipe(builtin.name);
    ASSERT_TRUE(recipe.ok()) << recipe.error().message;
    EXPECT_EQ(recipe.value().name, builtin.name);
    EXPECT_FALSE(recipe.value().about.empty());
    names.push_back(builtin.name);
  }
  EXPECT_EQ(names, (std::vector<std::string_view>{"experts-only", "fp8", "lab-fp8-embed",
                                                  "mixed-nvfp4-head", "mixed", "w4a16",
                                                  "w4a4-fp8-head", "w4a4"}));
}

/// The weight format that a recipe gives to a module, as one letter.
char letter_of(const Recipe& recipe, const char* module) {
  const int rule = recipe.find(module);
  if (rule < 0) return '-';
  switch (recipe.rules[static_cast<size_t>(rule)].gives.scheme.weights) {
    case WeightFormat::nvfp4:
      return '4';
    case WeightFormat::fp8_tensor:
      return '8';
    case WeightFormat::fp8_block:
      return 'b';
    default:
      return '?';
  }
}

TEST(Recipe, BuiltinOnesTakeWhatTheySay) {
  struct Row {
    const char* module;
    const char* letters;  // in the order of kNames
  };
  constexpr Row kRows[] = {
      {"model.language_model.layers.3.mlp.experts.17.gate_proj", "44444844"},
      {"model.layers.3.mlp.up_proj", "4444-844"},
      {"model.language_model.layers.3.mlp.shared_expert.down_proj", "4444-844"},
      {"model.layers.0.self_attn.q_proj", "8444-848"},
      {"model.layers.0.self_attn.o_proj", "8444-848"},
      {"model.layers.0.linear_attn.in_proj_qkv", "8----8-8"},
      {"model.layers.0.linear_attn.in_proj_z", "8----8-8"},
      {"model.layers.0.linear_attn.out_proj", "8----8-8"},
      {"lm_head", "8--b--b4"},
      {"model.layers.0.linear_attn.in_proj_a", "--------"},
      {"model.layers.0.linear_attn.in_proj_b", "--------"},
      {"model.layers.0.linear_attn.conv1d", "--------"},
      {"model.layers.0.mlp.gate", "--------"},
      {"model.layers.0.mlp.shared_expert_gate", "--------"},
      {"model.embed_tokens", "------b-"},
  };
  const char* kNames[] = {"mixed",        "w4a16", "w4a4",          "w4a4-fp8-head",
                          "experts-only", "fp8",   "lab-fp8-embed", "mixed-nvfp4-head"};
  EXPECT_EQ(kDefaultRecipe, kNames[0]);
  for (size_t i = 0; i < std::size(kNames); ++i) {
    const Recipe recipe = load_recipe(kNames[i]).value();
    for (const Row& row : kRows)
      EXPECT_EQ(letter_of(recipe, row.module), row.letters[i]) << kNames[i] << " " << row.module;
  }
  for (const char* name : {"w4a4", "w4a4-fp8-head"})
    EXPECT_EQ(load_recipe(name).value().status, RecipeStatus::free_text);
  EXPECT_EQ(load_recipe("lab-fp8-embed").value().status, RecipeStatus::lab);
}

TEST(Recipe, LastMatchWins) {
  const Recipe recipe = parse_recipe(concat(kHead,
                                            "rules:\n"
                                            "  - match: 're:.*_proj$'\n"
                                            "    weights: nvfp4\n"
                                            "  - match: a.down_proj\n"
                                            "    weights: keep\n"),
                                     "r")
                            .value();
  EXPECT_EQ(recipe.find("a.up_proj"), 0);
  EXPECT_EQ(recipe.find("a.down_proj"), 1);
  EXPECT_EQ(recipe.find("b.a.down_proj"), 0);
  EXPECT_EQ(recipe.find("norm"), -1);
}

TEST(Recipe, FourBitActivationsCarryTheirScale) {
  const Recipe recipe = parse_recipe(concat(kHead,
                                            "rules:\n  - match: x\n    weights: nvfp4\n"
                                            "    activations: nvfp4\n"
                                            "    input_scale: 0.0625\n"),
                                     "r")
                            .value();
  EXPECT_EQ(recipe.rules[0].gives.scheme,
            (QuantScheme{WeightFormat::nvfp4, ActivationFormat::nvfp4}));
  EXPECT_EQ(recipe.rules[0].gives.input_scale, 0.0625F);
}

TEST(Recipe, MayAskForSecondMoments) {
  const std::string rules = "rules:\n  - match: x\n    weights: nvfp4\n";
  EXPECT_EQ(parse_recipe(concat(kHead, rules), "r").value().second_moments, SecondMoments::plain);
  for (const auto& [word, means] :
       {std::pair("plain", SecondMoments::plain), std::pair("fisher", SecondMoments::fisher)})
    EXPECT_EQ(parse_recipe(concat(kHead, "second_moments: ", word, "\n", rules), "r")
                  .value()
                  .second_moments,
              means);
}

struct BadRecipe {
  std::string text;
  std::string says;
};

TEST(Recipe, BadOnesAreRefused) {
  const std::string head(kHead);
  const std::string rules = head + "rules:\n  - match: x\n";
  const BadRecipe kBad[] = {
      {"name: [", "r line 1: expected YAML, found end of sequence flow not found"},
      {"", "r line 1: recipe: expected key: value lines"},
      {"name: n\nstatus: lab\nrule: []\n",
       "r line 3: unknown key \"rule\"; did you mean \"rules\"?"},
      {"name: n\nname: n\n", "r line 2: key \"name\" appears twice"},
      {"status: lab\nrules: []\n", "r line 1: key \"name\" is missing"},
      {"name: n\nstatus: good\nrules: []\n",
       "r line 2: \"status\": expected production, free-text, lab, found good"},
      {head, "r line 1: \"rules\": expected a list of rules"},
      {head + "second_moments: hessian\nrules: []\n",
       "r line 3: \"second_moments\": expected plain, fisher, found hessian"},
      {head + "rules: []\n", "r line 3: \"rules\": expected a list of rules"},
      {head + "rules: 4\n", "r line 3: \"rules\": expected a list of rules"},
      {rules, "r line 4: key \"weights\" is missing"},
      {rules + "    weight: nvfp4\n",
       "r line 5: unknown key \"weight\"; did you mean \"weights\"?"},
      {rules + "    weights: nvfp5\n",
       "r line 5: \"weights\": expected nvfp4, fp8, fp8-block, keep, found nvfp5"},
      {rules + "    weights: keep\n    activations: nvfp4\n",
       "r line 4: \"activations\": expected \"weights: nvfp4\" with it; FP8 weights bring their "
       "own"},
      {rules + "    weights: fp8\n    activations: nvfp4\n    input_scale: 1\n",
       "FP8 weights bring their own"},
      {rules + "    weights: fp8\n", "r line 4: key \"input_scale\" is missing"},
      {rules + "    weights: fp8-block\n    input_scale: 1\n",
       "expected \"activations: nvfp4\" or \"weights: fp8\" with it"},
      {rules + "    weights: nvfp4\n    optional: maybe\n",
       "r line 6: \"optional\": expected true, false, found maybe"},
      {rules + "    weights: nvfp4\n    optinal: true\n", "did you mean \"optional\"?"},
      {head + "rules:\n  - match: " + std::string(401, 'x') + "\n    weights: nvfp4\n",
       "r line 4: \"match\": expected at most 400 characters, found 401"},
      {std::string(kRecipeBytesMax + 1, '#'), "r: expected a recipe of at most 262144 bytes"},
      {head + "rules: " + std::string(5000, '['), "r line 3: expected YAML"},
      {rules + "    weights: nvfp4\n    activations: nvfp4\n",
       "r line 4: key \"input_scale\" is missing"},
      {rules + "    weights: nvfp4\n    input_scale: 1\n",
       "r line 4: \"input_scale\": expected \"activations: nvfp4\" or \"weights: fp8\" with it"},
      {rules + "    weights: nvfp4\n    activations: nvfp4\n    input_scale: 3\n",
       "r line 7: \"input_scale\": expected a power of two such as 1, 0.5 or 0.0625, found 3"},
      {rules + "    weights: nvfp4\n    activations: nvfp4\n    input_scale: -1\n", "found -1"},
      {rules + "    weights: nvfp4\n    activations: nvfp4\n    input_scale: .nan\n", "found .nan"},
      {head + "rules:\n  - match: 're:(['\n    weights: nvfp4\n",
       "r line 4: \"match\": expected a module name, or re: and a regular expression, found re:(["},
      {head + "rules:\n  - match: Linear\n    weights: nvfp4\n", "found Linear"},
  };
  for (const auto& bad : kBad) {
    const auto recipe = parse_recipe(bad.text, "r");
    ASSERT_FALSE(recipe.ok()) << bad.text;
    EXPECT_NE(recipe.error().message.find(bad.says), std::string::npos) << bad.text << "\n"
                                                                        << recipe.error().message;
    EXPECT_EQ(recipe.error().message.find('\n'), std::string::npos);
  }
}

TEST(Recipe, LoadedByNameOrFile) {
  const test::Folder folder;
  const auto unknown = load_recipe("w4a17");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message,
            "recipe \"w4a17\": expected one of experts-only, fp8, lab-fp8-embed, mixed-nvfp4-head, "
            "mixed, "
            "w4a16, w4a4-fp8-head, w4a4, or a YAML file, found neither");
  write_file_atomically(folder / "mine.yaml",
                        concat(kHead, "rules:\n  - match: x\n    weights: nvfp4\n"))
      .value();
  EXPECT_EQ(load_recipe((folder / "mine.yaml").string()).value().source, "mine.yaml");
}

}  // namespace
}  // namespace nibble
