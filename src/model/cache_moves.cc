// Sorting, and joining neighbours.
#include "model/cache_moves.h"

#include <algorithm>

#include "base/check.h"

namespace nibble {
namespace {

/// Joins neighbours of pairs that are sorted by `to`.
std::vector<IdRun> join(std::span<const IdPair> sorted) {
  std::vector<IdRun> runs;
  for (const IdPair& pair : sorted) {
    if (!runs.empty() && runs.back().to + runs.back().count == pair.to &&
        runs.back().from + runs.back().count == pair.from)
      ++runs.back().count;
    else
      runs.push_back({.from = pair.from, .to = pair.to, .count = 1});
  }
  return runs;
}

}  // namespace

std::vector<IdRun> adjacent_runs(CacheMove move, std::span<const IdPair> pairs) {
  std::vector<IdPair> sorted(pairs.begin(), pairs.end());
  std::ranges::sort(sorted, {}, &IdPair::to);
  const auto twice = std::ranges::adjacent_find(sorted, {}, &IdPair::to);
  CHECK(twice == sorted.end(), "id ", twice->to, " is written twice by one call");
  if (move == CacheMove::copy)
    for (const IdPair& pair : sorted)
      CHECK(!std::ranges::binary_search(sorted, pair.from, {}, &IdPair::to), "id ", pair.from,
            " is read and written by one call");
  return join(sorted);
}

std::vector<IdRun> adjacent_runs(std::span<const int32_t> ids) {
  std::vector<IdPair> pairs;
  for (const int32_t id : ids) pairs.push_back({.from = id, .to = id});
  std::ranges::sort(pairs, {}, &IdPair::to);
  return join(pairs);
}

}  // namespace nibble
