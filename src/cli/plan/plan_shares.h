// Several models on one card: each is a server of its own with a share of the card's memory, and
// the shares are chosen here.
#pragma once

#include <span>
#include <vector>

#include "cli/plan/plan_making.h"

namespace nibble {

/// One model's part.
struct CardShare {
  const PlanModel* model = nullptr;
  std::string share;    // value of --gpu-memory-utilization in thousandths: "0.412"
  Arguments arguments;  // those of the command, with this share
  PlannedRun run;
};

/// Divides --gpu-memory-utilization of the card: each model gets the least share with which its
/// server starts under the flags given, and an equal part of what that leaves. Errors: no_memory
/// with the numbers of each; those of plan_run.
Result<std::vector<CardShare>> divide_card(const Arguments& arguments,
                                           std::span<const PlanModel> models,
                                           const PlannedCard& card);

}  // namespace nibble
