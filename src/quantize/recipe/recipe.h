// Recipe: which linears become what, as a short list of patterns from a YAML file. Knows module
// names only; what a checkpoint makes of it is quant_plan.h. Grammar: docs/formats.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config/module_pattern.h"
#include "tensor/quant_scheme.h"

namespace nibble {

/// production: fit for use. free_text: fit where no exact syntax is asked of the model.
/// lab: to experiment with; said aloud wherever the file is made or run.
enum class RecipeStatus : uint8_t { production, free_text, lab };
std::string_view recipe_status_name(RecipeStatus status);

/// How tokens count in the sums over a linear's input, if it is rounded with such: alike, or by
/// what errors at them cost (gradient/fisher_weights.h).
enum class SecondMoments : uint8_t { plain, fisher };

/// The scheme that a rule gives to a linear.
struct RecipeScheme {
  /// FP8 per tensor says fp8_tensor activations here; a dialect that prefers dynamic ones has them
  /// per token instead (dialect_scheme).
  QuantScheme scheme;
  /// Multiply direction, a power of two, so both dialects say it exactly. Meaningful if the scheme
  /// declares static or 4-bit activations; never measured in a data-free run.
  float input_scale = 1.0F;
};

struct RecipeRule {
  ModulePattern match;  // an exact module name, or re:<regex anchored at the start>
  RecipeScheme gives;
  bool optional = false;  // may match nothing: models without a delta net, tied heads
  int line = 0;
};

struct Recipe {
  std::string name;
  RecipeStatus status = RecipeStatus::lab;
  std::string about;
  SecondMoments second_moments = SecondMoments::plain;
  std::vector<RecipeRule> rules;
  std::string text;    // as it was read
  std::string source;  // for messages: a file name, or "recipe NAME"

  /// The last rule that matches, or -1.
  int find(std::string_view module) const;
};

/// Errors, with source and line: corrupt for YAML that is none; invalid_argument for an unknown key
/// (with the nearest known one), a missing or wrong value.
Result<Recipe> parse_recipe(std::string_view text, std::string_view source);

struct BuiltinRecipe {
  std::string_view name;
  std::string_view text;
};
/// The files of recipes/, compiled in.
std::span<const BuiltinRecipe> builtin_recipes();

/// Beyond these a recipe is refused.
inline constexpr size_t kRecipeBytesMax = size_t{1} << 18;
inline constexpr size_t kRecipeRulesMax = 1000;
inline constexpr size_t kRecipePatternMax = 400;

inline constexpr std::string_view kDefaultRecipe = "mixed";

/// A built-in recipe by name, or a file. Errors: not_found lists the names.
Result<Recipe> load_recipe(std::string_view name_or_file);

}  // namespace nibble
