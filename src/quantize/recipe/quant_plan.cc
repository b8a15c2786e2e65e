// Turns modules and rules into work and output tensors.
#include "quantize/recipe/quant_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "model/config/quant_config.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/recipe/scheme_words.h"

namespace nibble {
namespace {

/// The head and the MTP layer have files of their own: `convert --head` exchanges the one and links
/// the rest; llm-compressor writes the other so.
std::string own_file(std::string_view tensor) {
  if (tensor.starts_with("lm_head.")) return "model_head";
  return is_mtp(tensor) ? "model_mtp" : "";
}

/// True for a linear that shares its tensor with others.
bool in_fused_tensor(const LinearSource& source) {
  return source.values != source.module + ".weight";
}

bool speaks_of(const RecipeRule& rule, std::string_view word) {
  return rule.match.text().find(word) != std::string::npos;
}

/// Only a rule that speaks of embeddings takes the table, and one that speaks of mtp the layer that
/// drafts: `re:.*` means the linears of the model.
bool takes(const RecipeRule& rule, const std::string& module) {
  if (is_embedding(module) && !speaks_of(rule, "embed")) return false;
  if (is_mtp(module) && !speaks_of(rule, "mtp")) return false;
  return rule.match.matches(module);
}

/// This is what the recipe gives to a linear; the numbers of the rules that take it go to `used`.
RecipeScheme apply(const Recipe& recipe, const std::string& module, Dialect dialect,
                   std::set<int>& used) {
  RecipeScheme gives;
  for (int i = 0; i < static_cast<int>(recipe.rules.size()); ++i)
    if (takes(recipe.rules[static_cast<size_t>(i)], module)) {
      used.insert(i);
      gives = recipe.rules[static_cast<size_t>(i)].gives;  // the last match wins
    }
  if (is_embedding(module)) gives.scheme.activations = ActivationFormat::high;
  gives.scheme = dialect_scheme(gives.scheme, dialect, module);
  return gives;
}

class Planner {
 public:
  Planner(const Checkpoint& checkpoint, const Weights& weights, const Recipe& recipe)
      : checkpoint_(checkpoint), weights_(weights), recipe_(recipe) {}
  Result<QuantPlan> plan(Dialect dialect);

 private:
  Result<void> apply_recipe();
  Result<PlannedLinear> apply_rules(const LinearSource& source);
  Result<void> check_linear(const PlannedLinear& linear) const;
  Result<void> check_embedding(const PlannedLinear& table) const;
  Result<void> check_group(const FusedGroup& group) const;
  Result<void> check_rules_used() const;
  void sort_by_file();
  void open_experts();
  void place(const FusedGroup& group);
  void lay_out();
  void lay_out_linear(const PlannedLinear& linear);
  void add_output(std::string name, DType dtype, const Shape& shape);
  const TensorEntry& entry(const PlannedLinear& linear) const {
    const TensorEntry* found = checkpoint_.find(linear.source.values);
    CHECK(found != nullptr, linear.source.values);
    return *found;
  }

  const Checkpoint& checkpoint_;
  const Weights& weights_;
  const Recipe& recipe_;
  std::vector<FusedGroup> groups_;  // all of the model
  std::set<int> used_rules_;
  std::set<std::string> declared_;        // names in plan_.declaration.plain
  std::set<std::string> opened_experts_;  // expert lists with a quantized linear
  bool single_experts_ = false;           // none of the model stays in a fused tensor
  QuantPlan plan_;
};

Result<PlannedLinear> Planner::apply_rules(const LinearSource& source) {
  PlannedLinear linear{.source = source, .kind = linear_kind(source.module), .becomes = {}};
  if (source.scheme.weights != WeightFormat::plain)
    return make_error(ErrorCode::unsupported, {.what = source.module,
                                               .expected = "BF16, F16 or F32 weights",
                                               .found = "quantized ones",
                                               .advice = "quantize the original checkpoint"});
  linear.becomes = apply(recipe_, source.module, plan_.dialect, used_rules_);
  if (is_embedding(source.module)) TRY(check_embedding(linear));
  return linear;
}

Result<void> Planner::check_embedding(const PlannedLinear& table) const {
  const WeightFormat weights = table.becomes.scheme.weights;
  if (weights == WeightFormat::plain) return {};
  const bool tied = weights_.head().values == table.source.values;
  const auto refuse = [&](std::string_view expected, std::string_view found) {
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat(recipe_.source, ": ", table.source.module),
                       .expected = expected,
                       .found = found,
                       .advice = "add a later rule with \"weights: keep\" for it"});
  };
  if (weights != WeightFormat::fp8_block)
    return refuse("\"weights: fp8-block\" or \"keep\" for an embedding table",
                  words(table.becomes.scheme).format);
  if (recipe_.status != RecipeStatus::lab)
    return refuse("\"status: lab\" of a recipe that quantizes the embedding table",
                  recipe_status_name(recipe_.status));
  if (tied) return refuse("a table that is not the head too", "a head tied to it");
  return {};
}

Result<void> Planner::check_linear(const PlannedLinear& linear) const {
  const QuantScheme& scheme = linear.becomes.scheme;
  if (scheme.weights == WeightFormat::plain) return {};
  if (scheme.weights == WeightFormat::nvfp4 && linear.source.cols % kNvfp4Group != 0)
    return make_error(ErrorCode::unsupported,
                      {.what = concat(recipe_.source, ": ", linear.source.module),
                       .expected = "columns in groups of 16 for NVFP4",
                       .found = concat(linear.source.cols, " columns"),
                       .advice = "add a later rule with \"weights: keep\" for it"});
  if (dialect_can_say(scheme, plan_.dialect)) return {};
  return make_error(ErrorCode::unsupported,
                    {.what = concat(recipe_.source, ": ", linear.source.module),
                     .expected = concat("a scheme that ", dialect_name(plan_.dialect), " can say"),
                     .found = "FP8 in blocks of 128 x 128",
                     .advice = "use --format compressed-tensors, or \"weights: fp8\""});
}

Result<void> Planner::check_group(const FusedGroup& group) const {
  const PlannedLinear& first = group.linears.front();
  for (const PlannedLinear& linear : group.linears) {
    TRY(check_linear(linear));
    if (linear.becomes.scheme == first.becomes.scheme &&
        linear.becomes.input_scale == first.becomes.input_scale)
      continue;
    return make_error(
        ErrorCode::invalid_argument,
        {.what = concat(recipe_.source, ": ", first.source.module, " and ", linear.source.module),
         .expected = "one scheme for both, because engines fuse them",
         .found = "two"});
  }
  return {};
}

Result<void> Planner::check_rules_used() const {
  for (int i = 0; i < static_cast<int>(recipe_.rules.size()); ++i) {
    const RecipeRule& rule = recipe_.rules[static_cast<size_t>(i)];
    if (rule.optional || used_rules_.contains(i)) continue;
    return make_error(
        ErrorCode::invalid_argument,
        {.what = concat(recipe_.source, " line ", rule.line, ": \"", rule.match.text(),
                        "\" matches no linear of this model"),
         .advice = concat("names look like ", groups_.front().linears.front().source.module)});
  }
  return {};
}

Result<void> Planner::apply_recipe() {
  for (const auto& linears : fused_linears(weights_)) {
    FusedGroup group;
    for (const LinearSource* source : linears) {
      group.linears.push_back(TRY(apply_rules(*source)));
      group.bytes += dtype_bytes(entry(group.linears.back()).dtype, source->rows * source->cols);
    }
    TRY(check_group(group));
    groups_.push_back(std::move(group));
  }
  return check_rules_used();
}

/// Reading in file order keeps the disk streaming.
void Planner::sort_by_file() {
  std::ranges::stable_sort(plan_.rounded, {}, [&](const FusedGroup& group) {
    const LinearSource& source = group.linears.front().source;
    const TensorEntry& at = entry(group.linears.front());
    return std::tuple(at.file, at.offset, source.row_begin);
  });
}

/// If the experts of one layer are single tensors, those of all become so: SGLang (0.5.23) drops
/// single ones that come after fused ones, and says so in its log alone. Its MTP layer has another
/// loader.
void Planner::open_experts() {
  for (const FusedGroup& group : groups_) {
    const PlannedLinear& first = group.linears.front();
    const std::string list = expert_list(first.source.module);
    if (list.empty() || first.becomes.scheme.weights == WeightFormat::plain) continue;
    opened_experts_.insert(list);
    single_experts_ |= !is_mtp(list);
  }
}

/// Rounded, separated from a fused expert tensor, or left where it is.
void Planner::place(const FusedGroup& group) {
  const bool rounded = group.linears.front().becomes.scheme.weights != WeightFormat::plain;
  if (rounded) {
    for (const PlannedLinear& linear : group.linears)
      plan_.declaration.quantized.push_back({linear.source.module, linear.becomes.scheme});
    plan_.rounded.push_back(group);
    return;
  }
  for (const PlannedLinear& linear : group.linears) {
    if (is_embedding(linear.source.module)) continue;  // copied; no linear to declare
    const std::string list = expert_list(linear.source.module);
    const bool opened = opened_experts_.contains(list);
    const bool single = opened || (single_experts_ && !is_mtp(linear.source.module));
    if (single && in_fused_tensor(linear.source)) plan_.separated.push_back(linear);
    const std::string& name = list.empty() || opened ? linear.source.module : list;
    if (declared_.insert(name).second) plan_.declaration.plain.push_back(name);
  }
}

void Planner::add_output(std::string name, DType dtype, const Shape& shape) {
  plan_.bytes_out += dtype_bytes(dtype, shape.count());
  std::string file = own_file(name);
  plan_.outputs.push_back({std::move(name), dtype, shape, std::move(file)});
}

void Planner::lay_out_linear(const PlannedLinear& linear) {
  const LinearSource& source = linear.source;
  if (linear.becomes.scheme.weights == WeightFormat::plain) {
    add_output(source.module + ".weight", entry(linear).dtype, {source.rows, source.cols});
    return;
  }
  for (TensorPlan& tensor : stored_tensors(source.module, source.rows, source.cols,
                                           linear.becomes.scheme, plan_.dialect))
    add_output(std::move(tensor.name), tensor.dtype, tensor.shape);
}

/// Output tensors stand where their sources stood.
void Planner::lay_out() {
  std::map<std::string_view, std::vector<const PlannedLinear*>> made_from;
  for (const FusedGroup& group : plan_.rounded)
    for (const PlannedLinear& linear : group.linears)
      made_from[linear.source.values].push_back(&linear);
  for (const PlannedLinear& linear : plan_.separated)
    made_from[linear.source.values].push_back(&linear);
  std::vector<const TensorEntry*> in_order;
  for (const TensorEntry& tensor : checkpoint_.entries()) in_order.push_back(&tensor);
  std::ranges::sort(in_order, {},
                    [](const TensorEntry* e) { return std::pair(e->file, e->offset); });
  for (const TensorEntry* tensor : in_order) {
    plan_.bytes_in += tensor->bytes;
    const auto made = made_from.find(tensor->name);
    if (made == made_from.end()) {
      plan_.copied.push_back(tensor);
      add_output(tensor->name, tensor->dtype, tensor->shape);
      continue;
    }
    for (const PlannedLinear* linear : made->second) lay_out_linear(*linear);
  }
}

Result<QuantPlan> Planner::plan(Dialect dialect) {
  plan_.dialect = dialect;
  TRY(apply_recipe());
  open_experts();
  for (const FusedGroup& group : groups_) place(group);
  sort_by_file();
  if (plan_.rounded.empty())
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat(recipe_.source, " leaves every linear as it is"),
                       .expected = "at least one with \"weights: nvfp4\" or FP8"});
  declare_other_areas(checkpoint_, weights_, plan_.declaration);
  lay_out();
  return std::move(plan_);
}

}  // namespace

int64_t QuantPlan::largest_group_bytes() const {
  int64_t largest = 0;
  for (const FusedGroup& group : rounded) largest = std::max(largest, group.bytes);
  return largest;
}

RecipeScheme recipe_scheme(const Recipe& recipe, const std::string& module, Dialect dialect) {
  std::set<int> used;
  return apply(recipe, module, dialect, used);
}

Result<QuantPlan> plan_quantization(const Checkpoint& checkpoint, const Recipe& recipe,
                                    Dialect dialect) {
  if (!TRY(QuantConfig::read(checkpoint)).empty())
    return make_error(ErrorCode::unsupported,
                      {.what = checkpoint.folder().string(),
                       .expected = "an unquantized checkpoint",
                       .found = "a quantization_config",
                       .advice = "quantize the original; `convert` changes the dialect"});
  ModelConfig config = TRY(ModelConfig::parse(checkpoint.config()));
  const bool mtp = std::ranges::any_of(
      recipe.rules, [](const RecipeRule& rule) { return speaks_of(rule, "mtp"); });
  // Some checkpoints have left the layer out that their config speaks of.
  const bool there =
      std::ranges::any_of(checkpoint.entries(), is_mtp,
                          [](const TensorEntry& entry) { return std::string_view(entry.name); });
  config.draft_layers = mtp && there && config.mtp_layers > 0 ? 1 : 0;
  const Weights weights = TRY(Weights::bind(checkpoint, config));
  return Planner(checkpoint, weights, recipe).plan(dialect);
}

}  // namespace nibble
