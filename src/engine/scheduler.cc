// First come, first served; decode before prefill. The policy is stated in scheduler.h.
#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"
#include "engine/kv_pool.h"

namespace nibble {

namespace {

/// The next piece of a prompt: all that is left if it fits, else a multiple of 64. `cached` is a
/// multiple of 64 here, so every cut lies at an absolute multiple of 64.
int32_t prompt_piece(const SequenceView& s, int32_t budget) {
  const int32_t left = s.prompt_size - s.cached;
  return left <= budget ? left : budget / kPageTokens * kPageTokens;
}

std::vector<int32_t> admit(std::span<const SequenceView> sequences, FreeResources free,
                           int32_t running, const SchedulerLimits& limits) {
  std::vector<int32_t> admitted;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].phase != Phase::waiting) continue;
    const int32_t pages = KvPool::pages_for(sequences[i].tokens_max);
    const bool fits = running < limits.sequences_max && free.state_slots > 0 && pages <= free.pages;
    if (!fits) break;  // nobody overtakes
    admitted.push_back(static_cast<int32_t>(i));
    ++running;
    --free.state_slots;
    free.pages -= pages;
  }
  return admitted;
}

}  // namespace

Schedule schedule(std::span<const SequenceView> sequences, const FreeResources& free,
                  const SchedulerLimits& limits) {
  CHECK(limits.rows_max >= limits.sequences_max + kPageTokens, "rows_max ", limits.rows_max,
        " for ", limits.sequences_max, " sequences");
  int32_t budget = limits.rows_max;
  int32_t running = 0;
  Schedule result;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].phase != Phase::waiting) ++running;
    if (sequences[i].phase != Phase::decode) continue;
    result.rows.push_back({static_cast<int32_t>(i), 1, Arithmetic::generation});
    --budget;
  }
  result.admitted = admit(sequences, free, running, limits);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int32_t index = static_cast<int32_t>(i);
    const bool starts = std::ranges::find(result.admitted, index) != result.admitted.end();
    if (sequences[i].phase != Phase::prefill && !starts) continue;
    const int32_t piece = prompt_piece(sequences[i], budget);
    if (piece == 0) break;  // the budget is under 64; order is kept
    result.rows.push_back({index, piece, Arithmetic::prompt});
    budget -= piece;
  }
  return result;
}

}  // namespace nibble
