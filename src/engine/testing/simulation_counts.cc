// Sums of what happened in the lives of the simulation, their text, and if it was often enough.
#include <iterator>
#include <numeric>

#include "base/concat.h"
#include "engine/engine_core.h"
#include "engine/testing/simulation.h"

namespace nibble {
namespace {

struct Count {
  const char* name;
  int64_t SimulationCounts::*of;
  int64_t seeds_each = 0;  // it is to happen once in so many seeds; 0: no matter how often
};
constexpr Count kCounts[] = {
    {"seeds", &SimulationCounts::seeds},
    {"steps", &SimulationCounts::steps},
    {"passes", &SimulationCounts::passes},
    {"rows", &SimulationCounts::rows},
    {"rows of prompts", &SimulationCounts::prompt_rows},
    {"steps until first tokens", &SimulationCounts::first_waits},
    {"tokens compared", &SimulationCounts::tokens},
    {"sequences finished", &SimulationCounts::finished},
    {"swapped out", &SimulationCounts::swaps_out},
    {"rows without a page", &SimulationCounts::sat_out},
    {"swapped and brought back", &SimulationCounts::swaps, 10},
    {"started again (no host room)", &SimulationCounts::recomputes, 10},
    {"prefix lookups", &SimulationCounts::lookups},
    {"prefix hits", &SimulationCounts::cache_hits, 1},
    {"tokens from the cache", &SimulationCounts::hit_tokens},
    {"pages evicted", &SimulationCounts::page_evictions, 1},
    {"snapshots evicted", &SimulationCounts::snapshot_evictions, 1},
    {"moved to the host tier", &SimulationCounts::tier_stores, 1},
    {"brought back from it", &SimulationCounts::tier_loads, 10},
    {"cancelled at once", &SimulationCounts::cancelled_at_once, 10},
    {"cancelled waiting", &SimulationCounts::cancelled_waiting, 10},
    {"cancelled in prefill", &SimulationCounts::cancelled_prefill, 10},
    {"cancelled in decode", &SimulationCounts::cancelled_decode, 10},
    {"cancelled when swapped", &SimulationCounts::cancelled_swapped, 20},
    {"allocations made to fail", &SimulationCounts::allocation_failures, 1},
    {"ended by NaN", &SimulationCounts::not_finite, 100},
    {"ended by deadline", &SimulationCounts::deadlines, 2},
    {"of those, swapped out", &SimulationCounts::deadlines_swapped, 200},
    {"urgent before an earlier twin", &SimulationCounts::twins_ahead, 10},
    {"prompts kept apart by their salt", &SimulationCounts::apart_by_salt, 10},
    {"passes with drafts and a prompt", &SimulationCounts::drafts_beside_prompts, 1},
    {"drafts by the model", &SimulationCounts::model_drafts, 1},
    {"drafts by repeats in their place", &SimulationCounts::repeated_drafts, 10},
    {"drafts by a grammar", &SimulationCounts::forced_drafts, 1},
    {"drafts refused by a grammar", &SimulationCounts::drafts_refused, 1},
    {"tokens under a compiled grammar", &SimulationCounts::real_masked, 1},
    {"drafts under a compiled grammar", &SimulationCounts::real_drafts, 1},
    {"drafts right", &SimulationCounts::drafts_right, 1},
    {"drafts wrong", &SimulationCounts::drafts_wrong, 1},
    {"tokens chosen on the host", &SimulationCounts::sampled_here, 1},
    {"tokens chosen by the backend", &SimulationCounts::sampled_there, 1},
    {"passes begun ahead", &SimulationCounts::passes_ahead, 1},
    {"of those, where others were drafted", &SimulationCounts::passes_ahead_of_drafts, 1},
    {"rows in vain", &SimulationCounts::rows_in_vain, 2},
    {"masks too late for a pass ahead", &SimulationCounts::masks_late, 20},
    {"media encoded", &SimulationCounts::media_encoded, 1},
    {"media found encoded", &SimulationCounts::media_found, 2},
    {"media evicted", &SimulationCounts::media_evicted, 2},
    {"media restored", &SimulationCounts::media_restored, 20},
    {"media jobs abandoned", &SimulationCounts::media_abandoned, 20},
    {"media encoded again for another salt", &SimulationCounts::media_apart, 2},
};
static_assert(sizeof(SimulationCounts) == std::size(kCounts) * sizeof(int64_t), "all counts");

}  // namespace

void SimulationCounts::add(const SimulationCounts& other) {
  for (const Count& count : kCounts) this->*count.of += other.*count.of;
}

void SimulationCounts::add(const EngineCore& life) {
  const EngineCounters& engine = life.counters();
  const PrefixCounters& cache = life.memory().cache().counters();
  const MediaCounters media = life.media_counters();
  seeds += 1;
  passes += engine.passes;
  swaps_out += engine.swaps_out;
  swaps += engine.swaps_in;
  sat_out += engine.sat_out;
  lookups += cache.lookups;
  recomputes += engine.recomputes;
  not_finite += engine.not_finite;
  deadlines += engine.expired;
  cache_hits += cache.hits;
  hit_tokens += cache.hit_tokens;
  page_evictions += cache.pages_evicted;
  snapshot_evictions += cache.snapshots_evicted;
  tier_stores += cache.pages_stored + cache.states_stored;
  tier_loads += cache.pages_loaded + cache.states_loaded;
  drafts_right += engine.drafts_right;
  drafts_wrong += engine.drafted - engine.drafts_right;
  forced_drafts += engine.drafted_by[static_cast<size_t>(Proposer::grammar)];
  drafts_refused += engine.drafts_refused;
  sampled_here += engine.sampled_here;
  sampled_there += engine.sampled_there;
  passes_ahead += engine.passes_ahead;
  if (engine.drafted > 0) passes_ahead_of_drafts += engine.passes_ahead;
  rows_in_vain += engine.rows_in_vain;
  masks_late += engine.masks_late;
  media_encoded += media.encoded;
  media_found += media.found;
  media_evicted += media.evicted;
  media_restored += media.restored;
  media_abandoned += media.abandoned;
}

std::string SimulationCounts::contradiction(const EngineCore& life) {
  const EngineCounters& engine = life.counters();
  const PrefixCounters& cache = life.memory().cache().counters();
  const MediaCounters media = life.media_counters();
  const auto sum = [](const auto& of) { return std::accumulate(of.begin(), of.end(), int64_t{0}); };
  std::string faults;
  const auto need = [&](bool holds, const char* promise) {
    if (!holds) faults += concat(faults.empty() ? "the counters do not say that " : ", ", promise);
  };
  need(sum(engine.drafted_by) == engine.drafted, "all drafts are of a proposer");
  need(sum(engine.right_by) == engine.drafts_right, "all right drafts are of a proposer");
  need(sum(engine.right_at) <= engine.drafts_right, "right drafts have one place");
  need(engine.drafts_right <= engine.drafted, "only drafts can be right");
  need(engine.draft_rounds <= engine.drafted, "a round of drafts has one");
  need(engine.swaps_in <= engine.swaps_out, "what comes back was swapped out");
  need(engine.passes_ahead <= engine.passes, "a pass ahead is a pass");
  need(cache.hits <= cache.lookups, "a hit is a lookup");
  need(cache.hit_tokens >= cache.hits * kPageTokens, "a hit is a page at least");
  need(media.encoded <= media.encoded_rows, "an encoded medium has rows");
  return faults;
}

std::string SimulationCounts::text() const {
  std::string lines;
  for (const Count& count : kCounts) lines += concat(count.name, " ", this->*count.of, "\n");
  return lines;
}

std::string SimulationCounts::too_rare() const {
  std::string names;
  for (const Count& count : kCounts)
    if (count.seeds_each > 0 && this->*count.of * count.seeds_each < seeds)
      names += concat(names.empty() ? "" : ", ", count.name, " ", this->*count.of);
  return names;
}

}  // namespace nibble
