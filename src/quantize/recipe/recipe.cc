// The YAML of recipes. yaml-cpp stays in this file.
#include "quantize/recipe/recipe.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/edit_distance.h"
#include "base/file.h"

namespace nibble {
namespace {

/// Reads one document; keeps the source for messages.
class RecipeReader {
 public:
  explicit RecipeReader(std::string_view source) : source_(source) {}
  Result<Recipe> read(const YAML::Node& root) const;

 private:
  using Names = std::initializer_list<std::string_view>;
  Result<void> check_keys(const YAML::Node& map, Names keys) const;
  Result<std::string> text(const YAML::Node& map, std::string_view key) const;
  Result<size_t> choice(const YAML::Node& map, std::string_view key, Names choices) const;
  Result<RecipeRule> rule(const YAML::Node& node) const;
  Result<void> activations(const YAML::Node& node, RecipeRule& rule) const;
  Result<float> input_scale(const YAML::Node& node) const;
  std::string at(const YAML::Node& node) const {
    return concat(source_, " line ", std::max(node.Mark().line, 0) + 1);
  }
  Error wrong(const YAML::Node& node, const ErrorParts& parts) const {
    return make_error(ErrorCode::invalid_argument, {.what = concat(at(node), ": ", parts.what),
                                                    .expected = parts.expected,
                                                    .found = parts.found,
                                                    .advice = parts.advice});
  }

  std::string source_;
};

Result<void> RecipeReader::check_keys(const YAML::Node& map, Names keys) const {
  if (!map.IsMap()) return wrong(map, {.what = "recipe", .expected = "key: value lines"});
  std::vector<std::string> seen;
  for (const auto& member : map) {
    const std::string key = member.first.IsScalar() ? member.first.Scalar() : "?";
    if (std::ranges::find(seen, key) != seen.end())
      return wrong(member.first, {.what = concat("key \"", key, "\" appears twice")});
    seen.push_back(key);
    if (std::ranges::find(keys, key) != keys.end()) continue;
    const auto nearest =
        std::ranges::min_element(keys, {}, [&](auto known) { return edit_distance(key, known); });
    return wrong(member.first, {.what = concat("unknown key \"", key, "\""),
                                .advice = concat("did you mean \"", *nearest, "\"?")});
  }
  return {};
}

Result<std::string> RecipeReader::text(const YAML::Node& map, std::string_view key) const {
  const YAML::Node value = map[std::string(key)];
  if (!value) return wrong(map, {.what = concat("key \"", key, "\" is missing")});
  if (!value.IsScalar() || value.Scalar().empty())
    return wrong(value, {.what = concat("\"", key, "\""), .expected = "a word or a line"});
  return value.Scalar();
}

Result<size_t> RecipeReader::choice(const YAML::Node& map, std::string_view key,
                                    Names choices) const {
  const std::string value = TRY(text(map, key));
  const auto found = std::ranges::find(choices, value);
  if (found != choices.end()) return static_cast<size_t>(found - choices.begin());
  std::string known;
  for (const auto one : choices) known += concat(known.empty() ? "" : ", ", one);
  return wrong(map[std::string(key)],
               {.what = concat("\"", key, "\""), .expected = known, .found = value});
}

Result<float> RecipeReader::input_scale(const YAML::Node& node) const {
  const std::string text_value = TRY(text(node, "input_scale"));
  const YAML::Node value = node["input_scale"];
  double number = 0;
  int exponent = 0;
  const bool is_number = YAML::convert<double>::decode(value, number);
  if (!is_number || !(number > 0) || std::frexp(number, &exponent) != 0.5 ||
      std::abs(exponent) > 100)
    return wrong(value, {.what = "\"input_scale\"",
                         .expected = "a power of two such as 1, 0.5 or 0.0625",
                         .found = text_value});
  return static_cast<float>(number);
}

Result<RecipeRule> RecipeReader::rule(const YAML::Node& node) const {
  TRY(check_keys(node, {"match", "weights", "activations", "input_scale", "optional"}));
  const std::string match = TRY(text(node, "match"));
  if (match.size() > kRecipePatternMax)
    return wrong(node["match"], {.what = "\"match\"",
                                 .expected = concat("at most ", kRecipePatternMax, " characters"),
                                 .found = concat(match.size())});
  auto pattern = ModulePattern::compressed_tensors(match);
  if (!pattern.ok() || pattern.value().kind() == ModulePattern::Kind::every_linear)
    return wrong(node["match"], {.what = "\"match\"",
                                 .expected = "a module name, or re: and a regular expression",
                                 .found = match});
  RecipeRule rule{.match = std::move(pattern).value(), .gives = {}, .line = node.Mark().line + 1};
  constexpr QuantScheme kSchemes[] = {{WeightFormat::nvfp4, ActivationFormat::high},
                                      {WeightFormat::fp8_tensor, ActivationFormat::fp8_tensor},
                                      {WeightFormat::fp8_block, ActivationFormat::fp8_group},
                                      {WeightFormat::plain, ActivationFormat::high}};
  rule.gives.scheme = kSchemes[TRY(choice(node, "weights", {"nvfp4", "fp8", "fp8-block", "keep"}))];
  TRY(activations(node, rule));
  if (node["optional"]) rule.optional = TRY(choice(node, "optional", {"true", "false"})) == 0;
  return rule;
}

/// FP8 weights bring the activations of their kind; only NVFP4 has a choice.
Result<void> RecipeReader::activations(const YAML::Node& node, RecipeRule& rule) const {
  QuantScheme& scheme = rule.gives.scheme;
  if (node["activations"]) {
    const bool four_bit = TRY(choice(node, "activations", {"nvfp4", "high"})) == 0;
    if (scheme.weights != WeightFormat::nvfp4)
      return wrong(node, {.what = "\"activations\"",
                          .expected = "\"weights: nvfp4\" with it; FP8 weights bring their own"});
    if (four_bit) scheme.activations = ActivationFormat::nvfp4;
  }
  const bool scaled = scheme.activations == ActivationFormat::nvfp4 ||
                      scheme.activations == ActivationFormat::fp8_tensor;
  if (scaled) rule.gives.input_scale = TRY(input_scale(node));
  if (!scaled && node["input_scale"])
    return wrong(node, {.what = "\"input_scale\"",
                        .expected = "\"activations: nvfp4\" or \"weights: fp8\" with it"});
  return {};
}

Result<Recipe> RecipeReader::read(const YAML::Node& root) const {
  TRY(check_keys(root, {"name", "status", "about", "second_moments", "rules"}));
  Recipe recipe;
  recipe.source = source_;
  recipe.name = TRY(text(root, "name"));
  recipe.status =
      static_cast<RecipeStatus>(TRY(choice(root, "status", {"production", "free-text", "lab"})));
  if (root["about"]) recipe.about = TRY(text(root, "about"));
  if (root["second_moments"])
    recipe.second_moments =
        static_cast<SecondMoments>(TRY(choice(root, "second_moments", {"plain", "fisher"})));
  const YAML::Node rules = root["rules"];
  if (!rules || !rules.IsSequence() || rules.size() == 0)
    return wrong(rules ? rules : root, {.what = "\"rules\"", .expected = "a list of rules"});
  if (rules.size() > kRecipeRulesMax)
    return wrong(rules, {.what = "\"rules\"",
                         .expected = concat("at most ", kRecipeRulesMax),
                         .found = concat(rules.size())});
  for (const auto& node : rules) recipe.rules.push_back(TRY(rule(node)));
  return recipe;
}

Result<Recipe> read_document(std::string_view text, std::string_view source) {
  try {
    Recipe recipe = TRY(RecipeReader(source).read(YAML::Load(std::string(text))));
    recipe.text = text;
    return recipe;
  } catch (const YAML::Exception& failure) {
    return make_error(ErrorCode::corrupt, {.what = concat(source, " line ", failure.mark.line + 1),
                                           .expected = "YAML",
                                           .found = failure.msg});
  }
}

/// Words of the file come back in messages: without what would break the line, and not endless.
std::string one_line(std::string text) {
  constexpr size_t kMessageMax = 400;
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  if (text.size() > kMessageMax) text = text.substr(0, kMessageMax) + "...";
  return text;
}

}  // namespace

std::string_view recipe_status_name(RecipeStatus status) {
  constexpr std::string_view kNames[] = {"production", "free-text", "lab"};
  return kNames[static_cast<size_t>(status)];
}

int Recipe::find(std::string_view module) const {
  for (int i = static_cast<int>(rules.size()) - 1; i >= 0; --i)
    if (rules[static_cast<size_t>(i)].match.matches(module)) return i;
  return -1;
}

Result<Recipe> parse_recipe(std::string_view text, std::string_view source) {
  if (text.size() > kRecipeBytesMax)
    return make_error(ErrorCode::invalid_argument,
                      {.what = source,
                       .expected = concat("a recipe of at most ", kRecipeBytesMax, " bytes"),
                       .found = concat(text.size())});
  auto recipe = read_document(text, source);
  if (recipe.ok()) return recipe;
  return Error{recipe.error().code, one_line(recipe.error().message)};
}

Result<Recipe> load_recipe(std::string_view name_or_file) {
  std::string names;
  for (const auto& builtin : builtin_recipes()) {
    if (builtin.name == name_or_file)
      return parse_recipe(builtin.text, concat("recipe ", builtin.name));
    names += concat(names.empty() ? "" : ", ", builtin.name);
  }
  const std::filesystem::path file(name_or_file);
  std::error_code failure;
  if (!std::filesystem::is_regular_file(file, failure))
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat("recipe \"", name_or_file, "\""),
                       .expected = concat("one of ", names, ", or a YAML file"),
                       .found = "neither"});
  return parse_recipe(TRY(read_text_file(file, kRecipeBytesMax)), file.filename().string());
}

}  // namespace nibble
