// Extents, and bytes by the number of launches.
#include "backend/cuda/recorded_plan.h"

#include <algorithm>
#include <array>
#include <bit>

#include "backend/cuda/workspace.h"

namespace nibble::cuda {
namespace {

constexpr std::array<int32_t, 20> kRows = {1,  2,  4,  8,  12,  16,  24,  32,  40,  48,
                                           56, 64, 80, 96, 112, 128, 160, 192, 224, 256};

}  // namespace

std::span<const int32_t> recordable_rows() { return kRows; }

std::span<const int32_t> recorded_rows(const ModelConfig& config, const PoolSizes& sizes) {
  const auto last = std::ranges::lower_bound(kRows, sequences_most(config, sizes));
  auto count = static_cast<size_t>(last - kRows.begin());
  // The last one holds all sequences; it must fit the workspace.
  if (count < kRows.size() && kRows[count] <= sizes.rows_max) ++count;
  return std::span(kRows).first(count);
}

std::vector<Extent> recorded_extents(const ModelConfig& config, const PoolSizes& sizes) {
  std::vector<Extent> extents;
  for (const int32_t rows : recorded_rows(config, sizes))
    extents.push_back({.rows = rows, .sequences = rows});
  if (sizes.replay_rows == 0) return extents;
  const auto most = std::min<int64_t>(kRows.back(), sizes.rows_max);
  const auto sequences_end =
      static_cast<int32_t>(std::bit_ceil(static_cast<uint64_t>(sequences_most(config, sizes))));
  for (int32_t sequences = 1; sequences <= sequences_end; sequences *= 2)
    for (int32_t each = 1; int64_t{sequences} * each <= most;) {
      extents.push_back({.rows = sequences * each, .sequences = sequences, .replays = true});
      if (each == sizes.replay_rows) break;
      each = std::min(2 * each, sizes.replay_rows);
    }
  return extents;
}

std::vector<int32_t> recorded_drafts(const ModelConfig& config, const PoolSizes& sizes) {
  std::vector<int32_t> counts;
  if (config.draft_layers == 0) return counts;
  const int64_t most = std::min<int64_t>(kRowBlock, sizes.rows_max);
  const int64_t needed = std::min(most, sequences_most(config, sizes));
  for (int32_t count = 1; count <= most; count *= 2) {
    counts.push_back(count);
    if (count >= needed) break;
  }
  return counts;
}

int64_t recorded_bytes(const ModelConfig& config, const PoolSizes& sizes) {
  // On an H200 12 passes of the 35B, 365 launches each, take 7 MB, kernels' code included: 1.6 KB a
  // launch. Rounding: cudaMalloc hands out 2 MiB at a time.
  constexpr int64_t kLaunchBytes = 4096;
  constexpr int64_t kRoundingBytes = int64_t{8} << 20;
  constexpr int64_t kLaunchesOfPass = 3;   // embedding, last norm, head
  constexpr int64_t kLaunchesOfMixer = 5;  // project, convolve, recur or attend in two, project out
  constexpr int64_t kLaunchesOfEntries = 6;  // join, keep, product, norm, keys and values, store
  constexpr int64_t kLaunchesOfDraft = 6;    // join, product, norm, head, search, take
  const int64_t feed_forward = config.moe ? 5 : 3;
  const int64_t layer = kLaunchesOfMixer + feed_forward;
  const int64_t entries = config.draft_layers > 0 ? kLaunchesOfEntries : 0;
  const int64_t pass = kLaunchesOfPass + config.layer_count() * layer + entries;
  const int64_t step = kLaunchesOfDraft + layer;
  const int64_t launches = std::ssize(recorded_extents(config, sizes)) * pass +
                           std::ssize(recorded_drafts(config, sizes)) * step;
  return kRoundingBytes + launches * kLaunchBytes;
}

}  // namespace nibble::cuda
