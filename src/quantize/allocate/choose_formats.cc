// Greedy steps of falling gain per byte are optimal at each of their sums, as hulls are convex.
#include "quantize/allocate/choose_formats.h"

#include <algorithm>

#include "base/check.h"

namespace nibble {
namespace {

double slope(const AllocationChoice& from, const AllocationChoice& to) {
  return (from.loss - to.loss) / static_cast<double>(to.bytes - from.bytes);
}

/// The choices on the lower convex hull, as indices: each step has less gain per byte than the one
/// before.
std::vector<size_t> hull(const std::vector<AllocationChoice>& choices) {
  std::vector<size_t> kept = {0};
  for (size_t i = 1; i < choices.size(); ++i) {
    CHECK(choices[i].bytes > choices[i - 1].bytes, "bytes ", choices[i].bytes);
    if (!(choices[i].loss < choices[kept.back()].loss)) continue;
    while (kept.size() > 1 && slope(choices[kept[kept.size() - 2]], choices[kept.back()]) <=
                                  slope(choices[kept.back()], choices[i]))
      kept.pop_back();
    kept.push_back(i);
  }
  return kept;
}

}  // namespace

std::vector<Upgrade> upgrades(std::span<const AllocationGroup> groups) {
  std::vector<Upgrade> steps;
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::vector<AllocationChoice>& choices = groups[g].choices;
    const std::vector<size_t> kept = hull(choices);
    for (size_t i = 1; i < kept.size(); ++i) {
      const AllocationChoice &from = choices[kept[i - 1]], &to = choices[kept[i]];
      steps.push_back({.group = g,
                       .choice = kept[i],
                       .bytes = to.bytes - from.bytes,
                       .gain = from.loss - to.loss});
    }
  }
  std::ranges::stable_sort(steps, std::greater(), [](const Upgrade& step) {
    return step.gain / static_cast<double>(step.bytes);
  });
  return steps;
}

AllocationPoint choose_smallest(std::span<AllocationGroup> groups) {
  AllocationPoint total;
  for (AllocationGroup& group : groups) {
    group.chosen = 0;
    total.bytes += group.choices.front().bytes;
    total.loss += group.choices.front().loss;
  }
  return total;
}

namespace {

/// Sums anew, as differences of losses leave dust.
AllocationPoint chosen_total(std::span<const AllocationGroup> groups) {
  AllocationPoint total;
  for (const AllocationGroup& group : groups) {
    total.bytes += group.choices[group.chosen].bytes;
    total.loss += group.choices[group.chosen].loss;
  }
  return total;
}

}  // namespace

AllocationPoint choose_within_bytes(std::span<AllocationGroup> groups, int64_t bytes_max) {
  int64_t bytes = choose_smallest(groups).bytes;
  std::vector<char> ended(groups.size(), 0);
  for (const Upgrade& step : upgrades(groups)) {
    if (ended[step.group] != 0) continue;
    if (bytes + step.bytes > bytes_max) {
      ended[step.group] = 1;
      continue;
    }
    groups[step.group].chosen = step.choice;
    bytes += step.bytes;
  }
  return chosen_total(groups);
}

AllocationPoint choose_for_loss(std::span<AllocationGroup> groups, double loss_max) {
  double loss = choose_smallest(groups).loss;
  for (const Upgrade& step : upgrades(groups)) {
    if (loss <= loss_max) break;
    groups[step.group].chosen = step.choice;
    loss = chosen_total(groups).loss;
  }
  return chosen_total(groups);
}

std::vector<AllocationPoint> pareto_curve(std::span<const AllocationGroup> groups) {
  std::vector<AllocationGroup> at(groups.begin(), groups.end());
  std::vector<AllocationPoint> curve = {choose_smallest(at)};
  for (const Upgrade& step : upgrades(groups)) {
    at[step.group].chosen = step.choice;
    curve.push_back(chosen_total(at));
  }
  return curve;
}

}  // namespace nibble
