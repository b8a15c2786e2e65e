// From a planned model to what is reported of it: one place, or every card of the table.
#pragma once

#include <vector>

#include "cli/plan/plan_effects.h"

namespace nibble {

/// The part of a report that every place has.
PlanReport report_of(const Arguments& arguments, const PlanModel& model, const Place& place);

/// The whole report of a model in one place. `contexts` are the lengths that were asked for.
PlanReport whole_report(const Arguments& arguments, const PlanModel& model, const Place& place,
                        const PlannedRun& run, const std::vector<int64_t>& contexts);

/// A line for each card of the table. Errors: those of plan_run but no_memory.
Result<std::vector<CardFit>> card_fits(const Arguments& arguments, const PlanModel& model);

}  // namespace nibble
