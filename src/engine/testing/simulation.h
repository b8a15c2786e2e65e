// Simulation of the serving loop: one seed is one random life of an engine over the fake model:
// arrivals, shared prefixes, tenants' salts, twins, conversations, cancellations, deadlines,
// preemptions, evictions, tier moves, failing allocations, drafts right and wrong, grammars, images
// and videos, NaN, in virtual time. Every token is compared with what the model itself says after
// the same prefix, computed without pages, slots or batches.
#pragma once

#include <cstdint>
#include <string>

namespace nibble {

class EngineCore;

/// Counts of what happened in one or many simulated lives.
struct SimulationCounts {
  int64_t seeds = 0;
  int64_t steps = 0;
  int64_t passes = 0;
  int64_t rows = 0;         // computed in them, and
  int64_t prompt_rows = 0;  // those of prompts
  int64_t tokens = 0;
  int64_t finished = 0;
  int64_t swaps_out = 0;
  int64_t swaps = 0;
  int64_t recomputes = 0;
  int64_t sat_out = 0;  // rows without a page
  int64_t lookups = 0;
  int64_t cache_hits = 0;
  int64_t hit_tokens = 0;
  int64_t page_evictions = 0;
  int64_t snapshot_evictions = 0;
  int64_t tier_stores = 0;
  int64_t tier_loads = 0;
  int64_t cancelled_at_once = 0;  // before any step saw them
  int64_t cancelled_waiting = 0;
  int64_t cancelled_prefill = 0;
  int64_t cancelled_decode = 0;
  int64_t cancelled_swapped = 0;
  int64_t allocation_failures = 0;
  int64_t not_finite = 0;
  int64_t deadlines = 0;
  int64_t deadlines_swapped = 0;      // of those, while swapped out
  int64_t twins_ahead = 0;            // urgent requests served before an earlier twin
  int64_t apart_by_salt = 0;          // prompts whose first page only other tenants had
  int64_t drafts_beside_prompts = 0;  // passes with both
  int64_t model_drafts = 0;           // compared with what a layer drafts that has the text alone
  int64_t repeated_drafts = 0;        // from the text, in place of the model's
  int64_t forced_drafts = 0;          // tokens that a grammar forced
  int64_t drafts_refused = 0;         // tokens that a grammar did not let through
  int64_t real_masked = 0;            // tokens under a compiled grammar
  int64_t real_drafts = 0;            // for texts under one
  int64_t drafts_right = 0;
  int64_t drafts_wrong = 0;
  int64_t sampled_here = 0;            // rows whose token the host chose, and
  int64_t sampled_there = 0;           // the backend
  int64_t passes_ahead = 0;            // begun before the tokens of the pass before were read
  int64_t passes_ahead_of_drafts = 0;  // those of engines that drafted other passes
  int64_t rows_in_vain = 0;            // of sequences that ended before their tokens were read
  int64_t masks_late = 0;              // for the choices of such a pass
  int64_t first_waits = 0;             // steps until first tokens, of all
  int64_t media_encoded = 0;
  int64_t media_found = 0;  // without a call of the tower
  int64_t media_evicted = 0;
  int64_t media_restored = 0;   // from host memory
  int64_t media_abandoned = 0;  // jobs whose request ended
  int64_t media_apart = 0;      // that a further salt read

  void add(const SimulationCounts& other);
  /// Adds what an engine counted in its life.
  void add(const EngineCore& life);
  /// Empty, or counters of one engine that cannot all be true.
  static std::string contradiction(const EngineCore& life);
  /// One line per count.
  std::string text() const;
  /// Names of what happened less than once in ten seeds (NaN, deadlines: in a hundred).
  std::string too_rare() const;
};

/// Runs one life of at least `steps_min` steps. Empty: all well. Else what went wrong. A broken
/// CHECK ends the process; the program of the simulation prints the seed before.
std::string simulate(uint64_t seed, int64_t steps_min, SimulationCounts& counts);

}  // namespace nibble
