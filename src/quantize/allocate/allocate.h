// allocate: which of a recipe's linears become NVFP4, FP8 or stay, for a size or a predicted
// divergence; and the recipe that says so. Losses come from format_losses.h, the choice itself is
// choose_formats.h.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "quantize/allocate/format_losses.h"
#include "quantize/recipe/quant_plan.h"
#include "quantize/report/allocation.h"

namespace nibble {

/// One of both.
struct AllocationTarget {
  std::optional<int64_t> bytes;  // of all tensors of the output, at most
  std::optional<double> kl;      // predicted, nats a token, at most
  std::string text;              // the option, for the report
};

/// The linears whose format is to be chosen: those of the text model that the recipe quantizes, in
/// fused groups, all routed experts of a layer together.
class AllocationCandidates {
 public:
  /// `plan` is what the recipe makes of the checkpoint; both must outlive the result. Errors:
  /// invalid_argument for a recipe that has other formats than NVFP4 with high activations and FP8
  /// under one scale there, or none of these linears.
  static Result<AllocationCandidates> find(const QuantPlan& plan, const Recipe& recipe);

  bool contains(const std::string& module) const { return names_.contains(module); }
  /// The smallest output and the largest, in bytes of tensors.
  int64_t bytes_least() const;
  int64_t bytes_most() const;
  /// Errors: invalid_argument with both bounds for a size that no choice reaches, before any loss
  /// is known.
  Result<void> check(const AllocationTarget& target) const;
  /// Errors: those of check; invalid_argument for a divergence that only the unquantized model has.
  Result<Allocation> choose(const FormatLosses& losses, const AllocationTarget& target) const;
  /// The recipe that gives every candidate what was chosen, and all other linears what they had.
  Result<Recipe> recipe(const Allocation& allocation) const;

 private:
  struct Group {
    AllocationGroup choices;  // losses are zero
    std::vector<const PlannedLinear*> linears;
    int64_t plain_bytes = 0;  // of their source
  };
  AllocationCandidates(const QuantPlan& plan, const Recipe& recipe)
      : plan_(&plan), recipe_(&recipe) {}
  Result<void> check_format(const PlannedLinear& linear) const;
  void add(const FusedGroup& group);
  void add_choices(Group& group) const;

  const QuantPlan* plan_;
  const Recipe* recipe_;
  std::vector<Group> groups_;
  std::set<std::string> names_;              // of their linears
  std::vector<const PlannedLinear*> fixed_;  // rounded as the recipe says
  int64_t rest_bytes_ = 0;                   // of the output without the candidates
};

}  // namespace nibble
