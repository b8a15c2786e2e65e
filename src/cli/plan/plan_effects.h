// This is what `nibble plan` says beyond one plan: other flags, other lengths, other models.
#pragma once

#include <string>
#include <vector>

#include "cli/plan/plan_machine.h"
#include "cli/plan/plan_place.h"

namespace nibble {

/// This is what each flag that would leave more for pages makes of the plan, those that are given
/// left out.
std::vector<FlagEffect> effects_of(const Arguments& arguments, const PlanModel& model,
                                   const Place& place, const PlannedRun& run);

/// The longest request where --max-model-len does not bound it.
int32_t longest_context(const Arguments& arguments, const PlanModel& model, const Place& place,
                        const PlannedRun& run);

/// A line about the largest of the smaller presets that fits with the same flags, or that none
/// does.
std::string what_fits(const Arguments& arguments, const PlanModel& model, const Place& place);

}  // namespace nibble
