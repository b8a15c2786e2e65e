// Sums of what happened in the lives of the simulation, their text, and if it was often enough.
#include <numeric>

#include "base/concat.h"
#include "engine/engine_core.h"
#include "engine/testing/simulation.h"

namespace nibble {

void SimulationCounts::add(const SimulationCounts& o) {
  seeds += o.seeds, steps += o.steps, tokens += o.tokens, finished += o.finished;
  passes += o.passes, rows += o.rows, prompt_rows += o.prompt_rows;
  swaps_out += o.swaps_out, sat_out += o.sat_out, lookups += o.lookups;
  first_waits += o.first_waits;
  swaps += o.swaps, recomputes += o.recomputes;
  cache_hits += o.cache_hits, hit_tokens += o.hit_tokens;
  page_evictions += o.page_evictions, snapshot_evictions += o.snapshot_evictions;
  tier_stores += o.tier_stores, tier_loads += o.tier_loads;
  cancelled_at_once += o.cancelled_at_once;
  cancelled_waiting += o.cancelled_waiting, cancelled_prefill += o.cancelled_prefill;
  cancelled_decode += o.cancelled_decode, cancelled_swapped += o.cancelled_swapped;
  allocation_failures += o.allocation_failures;
  not_finite += o.not_finite, deadlines += o.deadlines;
  deadlines_swapped += o.deadlines_swapped, twins_ahead += o.twins_ahead;
  apart_by_salt += o.apart_by_salt, drafts_beside_prompts += o.drafts_beside_prompts;
  model_drafts += o.model_drafts, forced_drafts += o.forced_drafts;
  repeated_drafts += o.repeated_drafts;
  drafts_refused += o.drafts_refused;
  real_masked += o.real_masked, real_drafts += o.real_drafts;
  drafts_right += o.drafts_right, drafts_wrong += o.drafts_wrong;
  sampled_here += o.sampled_here, sampled_there += o.sampled_there;
  passes_ahead += o.passes_ahead, passes_ahead_of_drafts += o.passes_ahead_of_drafts;
  rows_in_vain += o.rows_in_vain;
  masks_late += o.masks_late;
  media_encoded += o.media_encoded, media_found += o.media_found;
  media_evicted += o.media_evicted, media_restored += o.media_restored;
  media_abandoned += o.media_abandoned, media_apart += o.media_apart;
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
  return concat(
      "seeds ", seeds, "\nsteps ", steps, "\npasses ", passes, "\nrows ", rows,
      "\nrows of prompts ", prompt_rows, "\nsteps until first tokens ", first_waits,
      "\ntokens compared ", tokens, "\nsequences finished ", finished, "\nswapped out ", swaps_out,
      "\nrows without a page ", sat_out, "\nswapped and brought back ", swaps,
      "\nstarted again (no host room) ", recomputes, "\nprefix lookups ", lookups, "\nprefix hits ",
      cache_hits, "\ntokens from the cache ", hit_tokens, "\npages evicted ", page_evictions,
      "\nsnapshots evicted ", snapshot_evictions, "\nmoved to the host tier ", tier_stores,
      "\nbrought back from it ", tier_loads, "\ncancelled at once ", cancelled_at_once,
      "\ncancelled waiting ", cancelled_waiting, "\ncancelled in prefill ", cancelled_prefill,
      "\ncancelled in decode ", cancelled_decode, "\ncancelled when swapped ", cancelled_swapped,
      "\nallocations made to fail ", allocation_failures, "\nended by NaN ", not_finite,
      "\nended by deadline ", deadlines, "\nof those, swapped out ", deadlines_swapped,
      "\nurgent before an earlier twin ", twins_ahead, "\nprompts kept apart by their salt ",
      apart_by_salt, "\npasses with drafts and a prompt ", drafts_beside_prompts,
      "\ndrafts by the model ", model_drafts, "\ndrafts by repeats in their place ",
      repeated_drafts, "\ndrafts by a grammar ", forced_drafts, "\ndrafts refused by a grammar ",
      drafts_refused, "\ntokens under a compiled grammar ", real_masked,
      "\ndrafts under a compiled grammar ", real_drafts, "\ndrafts right ", drafts_right,
      "\ndrafts wrong ", drafts_wrong, "\ntokens chosen on the host ", sampled_here,
      "\ntokens chosen by the backend ", sampled_there, "\npasses begun ahead ", passes_ahead,
      "\nof those, where others were drafted ", passes_ahead_of_drafts, "\nrows in vain ",
      rows_in_vain, "\nmasks too late for a pass ahead ", masks_late, "\nmedia encoded ",
      media_encoded, "\nmedia found encoded ", media_found, "\nmedia evicted ", media_evicted,
      "\nmedia restored ", media_restored, "\nmedia jobs abandoned ", media_abandoned,
      "\nmedia encoded again for another salt ", media_apart, "\n");
}

std::string SimulationCounts::too_rare() const {
  std::string names;
  const auto need = [&](const char* name, int64_t count, int64_t seeds_each) {
    if (count * seeds_each < seeds) names += concat(names.empty() ? "" : ", ", name, " ", count);
  };
  need("swaps", swaps, 10);
  need("recomputes", recomputes, 10);
  need("cache hits", cache_hits, 1);
  need("page evictions", page_evictions, 1);
  need("snapshot evictions", snapshot_evictions, 1);
  need("tier stores", tier_stores, 1);
  need("tier loads", tier_loads, 10);
  need("cancelled waiting", cancelled_waiting, 10);
  need("cancelled prefill", cancelled_prefill, 10);
  need("cancelled decode", cancelled_decode, 10);
  need("cancelled swapped", cancelled_swapped, 20);
  need("allocation failures", allocation_failures, 1);
  need("NaN", not_finite, 100);
  need("deadlines", deadlines, 2);
  need("deadlines of swapped ones", deadlines_swapped, 200);
  need("cancelled at once", cancelled_at_once, 10);
  need("twins ahead", twins_ahead, 10);
  need("apart by salt", apart_by_salt, 10);
  need("drafts beside prompts", drafts_beside_prompts, 1);
  need("drafts by the model", model_drafts, 1);
  need("drafts by repeats", repeated_drafts, 10);
  need("drafts by a grammar", forced_drafts, 1);
  need("drafts refused by a grammar", drafts_refused, 1);
  need("tokens under a compiled grammar", real_masked, 1);
  need("drafts under a compiled grammar", real_drafts, 1);
  need("right drafts", drafts_right, 1);
  need("wrong drafts", drafts_wrong, 1);
  need("tokens chosen on the host", sampled_here, 1);
  need("tokens chosen by the backend", sampled_there, 1);
  need("passes ahead", passes_ahead, 1);
  need("passes ahead of drafts", passes_ahead_of_drafts, 1);
  need("rows in vain", rows_in_vain, 2);
  need("late masks", masks_late, 20);
  need("media encoded", media_encoded, 1);
  need("media found", media_found, 2);
  need("media evicted", media_evicted, 2);
  need("media restored", media_restored, 20);
  need("media jobs abandoned", media_abandoned, 20);
  need("media of several salts", media_apart, 2);
  return names;
}

}  // namespace nibble
