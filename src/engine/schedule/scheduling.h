// The facts that the scheduler sees and the schedule that it returns, as plain types.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sequence.h"
#include "model/batch.h"

namespace nibble {

/// The facts of a sequence that the scheduler may know.
struct SequenceView {
  Phase phase = Phase::waiting;
  int32_t prompt_size = 0;
  int32_t cached = 0;      // tokens in its pages; when waiting, what a prefix hit would give
  int32_t hit_tokens = 0;  // prompt tokens taken from the prefix cache at admission
  /// Prompt tokens whose rows may run; fewer than prompt_size while media are encoded.
  int32_t prompt_ready = INT32_MAX;
  int32_t tokens_max = 0;     // prompt and longest continuation
  int32_t pages_held = 0;     // device pages in its table; when waiting, those of a prefix hit that
                              // need no free page; when swapped, none
  int32_t pages_private = 0;  // pages that swapping it out frees;
                              // when swapped, what bringing it back needs
  uint64_t tenant = 0;
  double weight = 1.0;   // weight of its tenant's share
  int32_t priority = 0;  // lower goes first
  double arrival_ms = 0.0;
  double swapped_ms = 0.0;  // when it was last swapped out
  int32_t times_swapped = 0;
  int32_t drafts = 0;           // rows it could use beside its one when decoding, and
  double draft_odds = 0.0;      // the chance of each, given that those before it were right
  bool draft_is_trial = false;  // its row is granted whatever it costs
};

/// The class by the prompt tokens that a prompt had to compute when it started: a prompt that is
/// nearly done does not rank after those that are short.
enum class SizeClass : uint8_t { short_prompt, medium, long_prompt };
inline constexpr size_t kSizeClasses = 3;

/// Long: more than `long_tokens`; short: up to a quarter of it.
inline SizeClass size_class(const SequenceView& s, int32_t long_tokens) {
  const int32_t known = s.phase == Phase::waiting ? s.cached : s.hit_tokens;
  const int32_t tokens = s.prompt_size - known;
  if (tokens <= long_tokens / 4) return SizeClass::short_prompt;
  return tokens <= long_tokens ? SizeClass::medium : SizeClass::long_prompt;
}

struct SchedulerLimits {
  int32_t rows_max = 0;             // rows of one pass; at least sequences_max + kPageTokens
  int32_t sequences_max = 0;        // running at once
  int32_t chunk_tokens_max = 0;     // prompt rows of one pass, rounded up to 64; 0: rows_max
  int32_t reserve_tokens = 4096;    // tokens of the answer for which room is reserved at admission
  double step_ms = 75.0;            // time budget of a pass with decoding sequences
  double prefill_step_ms = 250.0;   // and of one without
  int32_t long_tokens = 32 * 1024;  // a prompt with more to compute is long
  double long_share = 0.40;  // of prefill time for long prompts, if a tenant has short ones too
};

struct FreeResources {
  int32_t pages = 0;  // free, or freed by eviction from the prefix cache
  int32_t state_slots = 0;
  int32_t host_pages = 0;
  int32_t host_slots = 0;
};

struct ScheduledRows {
  int32_t sequence = 0;  // index into the views
  int32_t rows = 0;
  Arithmetic arithmetic = Arithmetic::prompt;
};

/// A sequence that starts or comes back, with one state slot and so many device pages to allocate
/// for it beyond `pages_held`: for its whole prompt, or all that it brings back, and some growth.
struct Placement {
  int32_t sequence = 0;  // index into the views
  int32_t pages = 0;
};

/// Carry out the members in this order. A running sequence named in `rows` whose pages are full
/// (pages_held * 64 <= cached) gets one more page first: there is one. One swapped out for whom the
/// host has no room (only if nobody could advance else) gives its pages up and computes them again.
struct Schedule {
  std::vector<int32_t> swapped_out;  // indices into the views
  std::vector<Placement> resumed;
  std::vector<Placement> admitted;
  std::vector<ScheduledRows> rows;  // may name resumed and admitted ones
};

}  // namespace nibble
