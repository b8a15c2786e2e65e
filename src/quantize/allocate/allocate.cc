// The groups and their bytes come from the recipe's own plan, so that fused linears, dialects and
// everything that is copied count as they will be written.
#include "quantize/allocate/allocate.h"

#include <algorithm>

#include "quantize/allocate/allocated_rules.h"
#include "quantize/allocate/choose_formats.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/report/text_of.h"

namespace nibble {
namespace {

constexpr QuantScheme kNvfp4 = {WeightFormat::nvfp4, ActivationFormat::high};
constexpr QuantScheme kFp8 = {WeightFormat::fp8_tensor, ActivationFormat::fp8_tensor};

QuantScheme scheme_of(AllocatedFormat format) {
  return format == AllocatedFormat::nvfp4 ? kNvfp4
         : format == AllocatedFormat::fp8 ? kFp8
                                          : QuantScheme();
}

/// "model.layers.3.self_attn.q_proj,k_proj,v_proj".
std::string group_name(const std::vector<const PlannedLinear*>& linears) {
  const std::string& first = linears.front()->source.module;
  if (const std::string list = expert_list(first); !list.empty()) return list;
  std::string name = first;
  for (size_t i = 1; i < linears.size(); ++i)
    name += concat(",", last_part(linears[i]->source.module));
  return name;
}

std::string bytes_text(int64_t bytes) {
  return concat(bytes, " bytes (", text_of("%.2f", static_cast<double>(bytes) / 1e6), " MB)");
}

std::string loss_text(double loss) { return text_of("%.3e", loss); }

}  // namespace

Result<void> AllocationCandidates::check_format(const PlannedLinear& linear) const {
  const QuantScheme& has = linear.becomes.scheme;
  if (has == kNvfp4 || has == dialect_scheme(kFp8, plan_->dialect, linear.source.module)) return {};
  return make_error(
      ErrorCode::invalid_argument,
      {.what = concat(recipe_->source, ": ", linear.source.module),
       .expected = "\"weights: nvfp4\" without 4-bit activations, or \"weights: fp8\", under a "
                   "target",
       .found = has.weights == WeightFormat::nvfp4 ? "4-bit activations" : "other weights",
       .advice = "leave --recipe out: the default's linears are then the candidates"});
}

void AllocationCandidates::add_choices(Group& group) const {
  int64_t nvfp4 = 0, fp8 = 0;
  bool in_sixteens = true;
  for (const PlannedLinear* linear : group.linears) {
    const LinearSource& source = linear->source;
    in_sixteens &= source.cols % kNvfp4Group == 0;
    fp8 += stored_bytes(source.rows, source.cols,
                        dialect_scheme(kFp8, plan_->dialect, source.module), plan_->dialect);
    if (in_sixteens) nvfp4 += stored_bytes(source.rows, source.cols, kNvfp4, plan_->dialect);
  }
  std::vector<AllocationChoice>& choices = group.choices.choices;
  if (in_sixteens) choices.push_back({.format = AllocatedFormat::nvfp4, .bytes = nvfp4});
  choices.push_back({.format = AllocatedFormat::fp8, .bytes = fp8});
  choices.push_back({.format = AllocatedFormat::unquantized, .bytes = group.plain_bytes});
}

/// Experts join those of their layer; any other group stands alone.
void AllocationCandidates::add(const FusedGroup& group) {
  const std::string list = expert_list(group.linears.front().source.module);
  Group* into = nullptr;
  if (!list.empty())
    for (Group& known : groups_)
      if (known.choices.name == list) into = &known;
  if (into == nullptr) into = &groups_.emplace_back();
  for (const PlannedLinear& linear : group.linears) {
    into->linears.push_back(&linear);
    names_.insert(linear.source.module);
    rest_bytes_ -=
        stored_bytes(linear.source.rows, linear.source.cols, linear.becomes.scheme, plan_->dialect);
  }
  into->plain_bytes += group.bytes;
  into->choices.name = group_name(into->linears);
}

Result<AllocationCandidates> AllocationCandidates::find(const QuantPlan& plan,
                                                        const Recipe& recipe) {
  AllocationCandidates found(plan, recipe);
  found.rest_bytes_ = plan.bytes_out;
  for (const FusedGroup& group : plan.rounded) {
    const std::string& module = group.linears.front().source.module;
    if (is_mtp(module) || is_embedding(module)) {
      for (const PlannedLinear& linear : group.linears) found.fixed_.push_back(&linear);
      continue;
    }
    for (const PlannedLinear& linear : group.linears) TRY(found.check_format(linear));
    found.add(group);
  }
  if (found.groups_.empty())
    return make_error(ErrorCode::invalid_argument,
                      {.what = recipe.source,
                       .expected = "a recipe that quantizes linears of the text model",
                       .found = "none"});
  for (Group& group : found.groups_) found.add_choices(group);
  std::ranges::stable_sort(found.groups_, {},
                           [](const Group& group) { return group.choices.name; });
  return found;
}

int64_t AllocationCandidates::bytes_least() const {
  int64_t bytes = rest_bytes_;
  for (const Group& group : groups_) bytes += group.choices.choices.front().bytes;
  return bytes;
}

int64_t AllocationCandidates::bytes_most() const {
  int64_t bytes = rest_bytes_;
  for (const Group& group : groups_) bytes += group.choices.choices.back().bytes;
  return bytes;
}

Result<void> AllocationCandidates::check(const AllocationTarget& target) const {
  if (!target.bytes || (*target.bytes >= bytes_least() && *target.bytes < bytes_most())) return {};
  return make_error(ErrorCode::invalid_argument,
                    {.what = "--target-bytes",
                     .expected = concat("at least ", bytes_text(bytes_least()),
                                        ", all candidates in NVFP4, and less than ",
                                        bytes_text(bytes_most()), ", none quantized"),
                     .found = bytes_text(*target.bytes)});
}

Result<Allocation> AllocationCandidates::choose(const FormatLosses& losses,
                                                const AllocationTarget& target) const {
  TRY(check(target));
  Allocation out{.recipe = recipe_->name, .target = target.text};
  for (const Group& group : groups_) {
    AllocationGroup& added = out.groups.emplace_back(group.choices);
    for (const PlannedLinear* linear : group.linears) {
      const auto loss = losses.find(linear->source.module);
      if (loss == losses.end()) continue;  // an expert without tokens
      for (AllocationChoice& choice : added.choices)
        choice.loss += choice.format == AllocatedFormat::nvfp4 ? loss->second.nvfp4
                       : choice.format == AllocatedFormat::fp8 ? loss->second.fp8
                                                               : 0.0;
    }
  }
  out.curve = pareto_curve(out.groups);
  for (AllocationPoint& point : out.curve) point.bytes += rest_bytes_;
  out.total = target.bytes ? choose_within_bytes(out.groups, *target.bytes - rest_bytes_)
                           : choose_for_loss(out.groups, *target.kl);
  out.total.bytes += rest_bytes_;
  if (out.total.bytes < bytes_most()) return out;
  return make_error(ErrorCode::invalid_argument,
                    {.what = "--target-kl",
                     .expected = concat("at least ", loss_text(out.curve.rbegin()[1].loss),
                                        ", with which one group is quantized; all candidates in "
                                        "NVFP4 give ",
                                        loss_text(out.curve.front().loss)),
                     .found = loss_text(*target.kl)});
}

Result<Recipe> AllocationCandidates::recipe(const Allocation& allocation) const {
  std::string text =
      concat("name: ", recipe_->name, "-allocated\nstatus: ", recipe_status_name(recipe_->status),
             "\nabout: ", "NVFP4, FP8 or as it was by loss per byte, ", allocation.target, "\n");
  if (recipe_->second_moments == SecondMoments::fisher) text += "second_moments: fisher\n";
  text += "rules:\n";
  for (size_t i = 0; i < groups_.size(); ++i) {
    const AllocationGroup& group = allocation.groups[i];
    const AllocatedFormat format = group.choices[group.chosen].format;
    if (format != AllocatedFormat::unquantized)
      add_rules(groups_[i].linears, scheme_of(format), text);
  }
  for (const PlannedLinear* linear : fixed_) add_rules({linear}, linear->becomes.scheme, text);
  return parse_recipe(text, "allocation");
}

}  // namespace nibble
