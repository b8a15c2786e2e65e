// Decides where a prompt's prefill takes snapshots of the recurrent state. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cache/prefix_cache.h"
#include "engine/sequence.h"

namespace nibble {

inline constexpr int32_t kSnapshotIntervalTokens = 8192;
/// A request leaves at most kSnapshotsMax + prompt / kSnapshotIntervalTokens snapshots.
inline constexpr int32_t kSnapshotsMax = 6;

/// Places after `cached` tokens and at most at the prompt's end, ascending, all multiples of 64.
/// `known_tokens`: how far the prompt follows a path that others left (PrefixCache::Match).
std::vector<PlannedSnapshot> plan_snapshots(const CacheRequest& request, int32_t prompt_size,
                                            int32_t cached, int32_t known_tokens);

}  // namespace nibble
