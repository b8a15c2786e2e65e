// The choice of one format for each group under a budget: a knapsack with one item of each class,
// solved along the lower convex hull of each group's choices. Numbers only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quantize/report/allocation.h"

namespace nibble {

/// One step of a group to a larger choice.
struct Upgrade {
  size_t group = 0;
  size_t choice = 0;
  int64_t bytes = 0;  // more than the choice before
  double gain = 0;    // less loss, above zero
};

/// All steps that may pay, those with the largest gain per byte first; steps of one group in their
/// order. A choice above the line between its neighbours is skipped. Of equal ones the earlier
/// group goes first. Choices must be in ascending order of bytes (CHECK).
std::vector<Upgrade> upgrades(std::span<const AllocationGroup> groups);

/// The smallest choice of every group, and its sums.
AllocationPoint choose_smallest(std::span<AllocationGroup> groups);
/// Sets what is chosen to the best within so many bytes of the groups: the first steps that fit; a
/// step that does not fit ends its group's, others go on.
AllocationPoint choose_within_bytes(std::span<AllocationGroup> groups, int64_t bytes_max);
/// Sets it to the fewest steps with which the loss is at most so much.
AllocationPoint choose_for_loss(std::span<AllocationGroup> groups, double loss_max);
/// Bytes and loss after each step, beginning with none.
std::vector<AllocationPoint> pareto_curve(std::span<const AllocationGroup> groups);

}  // namespace nibble
