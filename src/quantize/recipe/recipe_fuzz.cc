// Fuzz entry: one recipe. What parses must keep to its limits and find rules for any name; any text
// either parses or is refused in one line.
#include "quantize/recipe/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto recipe = nibble::parse_recipe(text, "fuzz");
  if (!recipe.ok()) {
    CHECK(recipe.error().message.find('\n') == std::string::npos, recipe.error().message);
    return 0;
  }
  const nibble::Recipe& r = recipe.value();
  CHECK(!r.name.empty() && !r.rules.empty() && r.rules.size() <= nibble::kRecipeRulesMax,
        r.rules.size());
  for (const nibble::RecipeRule& rule : r.rules)
    CHECK(rule.gives.input_scale > 0, rule.gives.input_scale);
  (void)r.find("model.language_model.layers.3.mlp.experts.17.gate_proj");
  return 0;
}
