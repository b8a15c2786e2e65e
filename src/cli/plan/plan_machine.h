// A model on a machine that nobody asks: the facts a memory plan needs, made of the card table and
// the model's shapes, and the plan itself by the server's own functions.
#pragma once

#include <optional>
#include <string>

#include "cli/plan/plan_model.h"
#include "cli/plan/plan_place.h"
#include "cli/serving/engine_setup.h"
#include "plan/card_table.h"
#include "plan/plan_report.h"

namespace nibble {

/// A model planned on a card, or without one in this machine's memory.
struct PlannedRun {
  MemoryRequest request;
  MemoryPlan plan;
  int64_t context_bytes = 0;
  int64_t recorded_bytes = 0;
  std::string speculation;  // what a server says of its drafts
  bool drafts_by_default = false;
};

/// The engine of `nibble serve`.
inline constexpr EngineNeeds kServingNeeds = {.use = EngineUse::serving, .sequences_max = 1};

/// The tower that a server loads in such a place; nothing where it is left out.
std::optional<VisionConfig> loaded_tower(const Arguments& arguments, const PlanModel& model,
                                         Place::Kind kind);

/// Errors: those of memory_request and plan_memory.
Result<PlannedRun> plan_run(const Arguments& arguments, const PlanModel& model,
                            const std::optional<PlannedCard>& card);

/// The bytes of a step of generation, with the page and the state of a plan.
SpeedRow speed_row(const PlanModel& model, const MemoryRequest& request,
                   const std::optional<PlannedCard>& card, int64_t streams, int64_t context);

}  // namespace nibble
