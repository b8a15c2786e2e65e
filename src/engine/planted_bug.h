// Planted bugs: mistakes that a build can be told to make (-DNIBBLE_PLANTED_BUG=n), one per class
// of invariant, to prove that the tests would see them. tests/planted_bugs.sh builds and runs each.
// 0, the default, is the correct program; `planted` is a constant then and costs nothing.
#pragma once

#ifndef NIBBLE_PLANTED_BUG
#define NIBBLE_PLANTED_BUG 0
#endif

namespace nibble {

enum PlantedBug : int {
  kBugNone = 0,
  // prefix cache and pools: 1-19
  // scheduler: 20-29
  // sampler and constraints: 30-39
  kBugRngIgnoresChoice = 30,    // choices of one request draw the same numbers
  kBugPaddingSampleable = 31,   // rows without a token may be sampled
  kBugPresenceCountsPrompt = 32,  // presence and frequency count the prompt too
  kBugTopPKeepsTail = 33,       // one token beyond the nucleus
  kBugRollbackKeepsRuns = 34,   // repetition: a rollback forgets to shorten the runs
  kBugChainForgetsOne = 35,     // a rollback of a chain misses its last member
  kBugBudgetMissesDrafts = 36,  // thinking: the mask does not see drafted tokens
  // engine core: 40-59
};

constexpr bool planted(PlantedBug bug) { return NIBBLE_PLANTED_BUG == bug; }

}  // namespace nibble
