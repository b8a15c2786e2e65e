// The semantic places first; what is over the budget is cut from the least useful.
#include "engine/cache/snapshot_plan.h"

#include <algorithm>

#include "base/planted_bug.h"

namespace nibble {
namespace {

/// Lower is dropped later.
int usefulness_rank(SnapshotPlace place) {
  switch (place) {
    case SnapshotPlace::pinned:
      return 0;
    case SnapshotPlace::boundary:
      return 1;
    case SnapshotPlace::junction:
      return 2;
    case SnapshotPlace::generation:
      return 3;
    case SnapshotPlace::interval:
      return 4;
  }
  return 5;
}

}  // namespace

std::vector<PlannedSnapshot> plan_snapshots(const CacheRequest& request, int32_t prompt_size,
                                            int32_t cached, int32_t known_tokens) {
  std::vector<PlannedSnapshot> places;
  const auto add = [&](int32_t tokens, SnapshotPlace place) {
    const int32_t whole =
        planted(kBugSnapshotOffGrid) ? tokens : tokens / kPageTokens * kPageTokens;
    if (whole > cached && whole <= prompt_size) places.push_back({whole, place});
  };
  add(request.pinned_tokens, SnapshotPlace::pinned);
  add(prompt_size, SnapshotPlace::boundary);      // what the next turn continues from
  add(prompt_size - 1, SnapshotPlace::boundary);  // and the same prompt again
  for (const int32_t boundary : request.boundaries) add(boundary, SnapshotPlace::boundary);
  add(known_tokens, SnapshotPlace::junction);
  for (int32_t at = kSnapshotIntervalTokens; at <= prompt_size; at += kSnapshotIntervalTokens)
    add(at, SnapshotPlace::interval);

  const auto more_useful = [](const PlannedSnapshot& a, const PlannedSnapshot& b) {
    return usefulness_rank(a.place) < usefulness_rank(b.place);
  };
  std::ranges::stable_sort(places, more_useful);
  std::vector<PlannedSnapshot> kept;
  const auto budget = static_cast<size_t>(kSnapshotsMax + prompt_size / kSnapshotIntervalTokens);
  for (const PlannedSnapshot& place : places) {
    const bool known = std::ranges::any_of(
        kept, [&](const PlannedSnapshot& other) { return other.tokens == place.tokens; });
    if (!known && kept.size() < budget) kept.push_back(place);
  }
  std::ranges::sort(kept, {}, &PlannedSnapshot::tokens);
  return kept;
}

}  // namespace nibble
