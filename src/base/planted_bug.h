// Planted bugs: mistakes that a build can be told to make (-DNIBBLE_PLANTED_BUG=n), one per class
// of invariant, to prove that the tests would see them. `./test --mutate planted-bugs` tries each.
// 0, the default, is the correct program; `planted` is a constant then and costs nothing.
#pragma once

#ifndef NIBBLE_PLANTED_BUG
#define NIBBLE_PLANTED_BUG 0
#endif

namespace nibble {

enum PlantedBug : int {
  kBugNone = 0,
  // prefix cache and pools: 1-19
  kBugTrustsWeakHash = 1,        // two bits of hash decide, tokens are not compared
  kBugIgnoresSalt = 2,           // one tree for all tenants
  kBugIgnoresMedia = 3,          // placeholder tokens alone decide
  kBugEvictsHeldPage = 4,        // frees a page that a sequence reads
  kBugDedupeKeepsPage = 5,       // the duplicate page is not released
  kBugDedupeForgetsRetain = 6,   // the tree's page is given out without a reference
  kBugSnapshotToParent = 7,      // a state is filed one page too early
  kBugStoresWrongPage = 8,       // the host copy is the parent's page
  kBugAcquireLeaksCursor = 9,    // a failed acquire leaves its lock
  kBugCondemnsNothing = 10,      // what was not finite is found again
  kBugAvailableOffByOne = 11,    // promises a page that is not there
  kBugStaleHostCopy = 12,        // a host page is given away and still used
  kBugForgetsToStoreState = 13,  // the host slot keeps what was there before
  kBugMatchesBeyondLimit = 14,   // ignores tokens_max
  // scheduler: 20-29
  kBugCutsAnywhere = 20,         // a prompt is cut off the 64 grid
  kBugAdmitsWithoutRoom = 21,    // pages are not counted at admission
  kBugResumesShort = 22,         // one that comes back gets a page too few
  kBugNeverResumes = 23,         // a sequence that was swapped out stays out
  kBugIgnoresSeats = 24,         // sequences_max is not looked at
  kBugGrowsWithoutPage = 25,     // a row is scheduled that has no page
  kBugVictimStillRuns = 26,      // rows for one that was swapped out in the same pass
  kBugShortestAlways = 27,       // no shares and no ageing: long prompts starve
  kBugRejectedRowsAreFree = 28,  // a tenant's wrong drafts are not counted as its time
  // sampler and constraints: 30-39
  kBugRngIgnoresChoice = 30,      // choices of one request draw the same numbers
  kBugPaddingSampleable = 31,     // rows without a token may be sampled
  kBugPresenceCountsPrompt = 32,  // presence and frequency count the prompt too
  kBugTopPKeepsTail = 33,         // one token beyond the nucleus
  kBugRollbackKeepsRuns = 34,     // repetition: a rollback forgets to shorten the runs
  kBugChainForgetsOne = 35,       // a rollback of a chain misses its last member
  kBugBudgetMissesDrafts = 36,    // thinking: the mask does not see drafted tokens
  kBugLooksKeepOne = 37,          // a look at drafts leaves one of them in the grammar's matcher
  // engine core: 40-69
  kBugSnapshotOffGrid = 40,        // a snapshot is labelled with a place between pages
  kBugAdmissionLeaksHit = 41,      // failed admission keeps the pages of its prefix hit
  kBugStateNotZeroed = 42,         // a new sequence starts from the slot's last state
  kBugSwapForgetsState = 43,       // swapping out stores pages only
  kBugSwapLosesLastPage = 44,      // swapping in loads all pages but the last
  kBugPublishesGenerated = 45,     // exact mode publishes pages of generated tokens
  kBugPublishesNan = 46,           // pages are published unseen
  kBugSnapshotEarly = 47,          // snapshots are taken a row too early
  kBugReplaySamples = 48,          // a sequence that computes its cache again samples too soon
  kBugCancelKeepsSlot = 49,        // a cancelled sequence keeps its state slot
  kBugForgetsReplay = 50,          // accepted drafts never reach the state
  kBugReplaysRejected = 51,        // rejected ones do
  kBugAcceptsWrongDraft = 52,      // a draft counts though another token was sampled
  kBugDeadlineLate = 53,           // a time limit holds 100 ms longer than it should
  kBugCancelMissesNew = 54,        // a cancel overlooks a request that came with it
  kBugUrgentWaitsForTwin = 55,     // a twin of worse priority is waited for too
  kBugDraftsStopPrompts = 56,      // drafts leave a prompt no block of 64 rows
  kBugDraftsOnePlaceLate = 57,     // entries of drafts lie one place too far
  kBugDraftsFromStaleHidden = 58,  // drafts begin before the rows that were accepted last
  kBugForcedOnePlaceLate = 59,     // forced tokens are proposed without the first of them
  kBugKeepsRefusedDrafts = 60,     // drafts go on after a token that the constraint refuses
  kBugMasksForgetDrafts = 61,      // a drafted row is masked as if nothing were drafted before it
  kBugCarriesByPlace = 62,         // a carried token is that of the row with the same number
  kBugChoosesBeforeTokens = 63,    // choices of a pass ahead are made before the tokens are read
  kBugCountsVoidRow = 64,          // the row of a sequence that has ended counts as a token
  kBugLateMaskKeepsState = 65,     // a sequence whose mask is late keeps a state that has gone on
  // media: 70-79
  kBugEvictsHeldMedia = 70,      // rows that a sequence will read are given away
  kBugNeverTakesMedia = 71,      // two sequences wait for each other's rows and pages
  kBugKeepsMediaJob = 72,        // a job goes on though its request has ended
  kBugReadsMediaEarly = 73,      // prompt rows run before their media are encoded
  kBugMediaKeyIgnoresSalt = 74,  // one tenant's rows are found by another
  kBugMediaOffByOne = 75,        // a row reads the place of the next
  kBugKeepsNoMediaOnHost = 76,   // rows in host memory are those that were there before
};

constexpr bool planted(PlantedBug bug) { return NIBBLE_PLANTED_BUG == bug; }

}  // namespace nibble
