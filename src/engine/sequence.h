// Sequence: one generated text as the engine sees it: token ids, cache pages, a state slot, limits,
// a phase. A request with n choices is n sequences. No text here.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/token_constraint.h"
#include "engine/cache/prefix_cache.h"
#include "engine/sample/repeat_index.h"
#include "engine/sample/sampler.h"
#include "engine/sample/sampling_params.h"
#include "model/media_patches.h"

namespace nibble {

/// The use of the prefix cache by a request.
struct CacheRequest {
  uint64_t salt = 0;  // only requests of one salt share anything
  /// Prompt lengths at which a snapshot of the state is worth having: end of system prompt and
  /// tools, before the assistant's turn. Ascending; rounded down to whole pages.
  std::vector<int32_t> boundaries;
  int32_t pinned_tokens = 0;  // a prefix the caller asks to keep, also on disk
  /// Fast mode: where one of these is generated (a tool call begins), the state before it is kept:
  /// clients write calls anew, and the next turn leaves this text there.
  std::vector<int32_t> anchor_ids;
};

/// The owner and the urgency of a request.
struct Urgency {
  uint64_t tenant = 0;
  double weight = 1.0;       // weight of its tenant's share of prefill time; above 0
  int32_t priority = 0;      // lower goes first
  double deadline_ms = 0.0;  // on the engine's clock; 0: none. Past it the sequence ends
};

/// An image, or one piece of a video between two time stamps, in place of placeholder tokens. The
/// engine encodes its patches, once for equal digests.
struct MediaRows {
  /// The part of the prompt that it fills. Its digest stands for all that decides its rows:
  /// pixels after resizing, grid, normalisation.
  MediaSpan span;
  std::shared_ptr<const MediaPatches> patches;  // span.count = patches->grid.rows(merge)
};

/// A caller's request to the engine.
struct SequenceRequest {
  uint64_t id = 0;              // chosen by the caller, unique among live sequences
  std::vector<int32_t> prompt;  // at least one id
  int32_t max_tokens = 1;       // generated tokens, at least 1
  int32_t min_tokens = 0;       // stop ids are not sampled before this many
  std::vector<int32_t> stop_ids;
  SamplingParams sampling;
  std::unique_ptr<TokenConstraint> constraint;  // may be empty
  CacheRequest cache;
  Urgency urgency;
  int32_t prompt_logprobs = -1;  // -1: none; 0: of each prompt token; n: also of the n best
  bool tells_progress = false;   // PromptProgress is published
  std::vector<MediaRows> media;  // ascending, disjoint
  /// Rotary positions (t, h, w) of the prompt; empty: those of media_positions, by the grids of
  /// `media`, which are 0, 1, 2, ... on all axes without any. Generated tokens go on after the
  /// largest.
  std::vector<std::array<int32_t, 3>> positions;
};

enum class FinishReason : uint8_t { stop, length, cancelled, error, deadline, repetition };

enum class Phase : uint8_t {
  waiting,  // holds no pages and no slot
  prefill,  // some prompt tokens are not in the cache yet
  decode,   // one token to feed per step
  swapped,  // its state and private pages are in host memory
};

/// The origin of drafts.
enum class Proposer : uint8_t {
  text,     // a Drafter, from what the sequence says
  model,    // the model's own layer
  grammar,  // a constraint that allows hardly anything else
};
inline constexpr size_t kProposers = 3;

/// A snapshot to take when the prefill has reached `tokens`.
struct PlannedSnapshot {
  int32_t tokens = 0;
  SnapshotPlace place = SnapshotPlace::boundary;
};

/// Trials of drafts that do not seem to pay: one now and then. A trial is due when it would take at
/// most this share of the time of the tokens since the last one; each that is in vain halves it.
struct DraftTrials {
  static constexpr double kShareMost = 1.0 / 32;
  static constexpr double kShareFirst = 1.0 / 128;  // of a new sequence, at least
  static constexpr double kShareLeast = 1.0 / 1024;
  double share = kShareMost;
  int32_t tokens = 0;    // since the last trial, without drafts
  bool running = false;  // what is drafted now is one
  /// The cost that a trial may have after `more` tokens, in tokens.
  double allowed(int32_t more) const { return share * (tokens + more); }
};

struct Sequence {
  SequenceRequest request;
  uint64_t serial = 0;  // number of its submission, from 1: no two sequences share one
  Phase phase = Phase::waiting;
  int32_t cached = 0;              // tokens in the pages and in the state
  std::vector<int32_t> generated;  // published ones; the last is not in the cache yet

  // These are on the device, unless the sequence is waiting or swapped.
  std::vector<int32_t> pages;
  int32_t state_slot = -1;
  int32_t replay = 0;  // the last so many of `cached` are saved inputs beside the state
  // These are in host memory while the sequence is swapped.
  std::vector<int32_t> host_pages;
  int32_t host_slot = -1;
  Phase resumes_as = Phase::decode;

  // Prefix cache.
  PrefixCache::Match match;    // when waiting: what was found when last asked
  int32_t hit_tokens = 0;      // taken over from the cache at admission
  PrefixCache::Cursor cursor;  // last page it shares with the cache; empty: it publishes nothing
  std::vector<PlannedSnapshot> snapshots;  // still to take, ascending
  int32_t tail_slot = -1;  // fast mode: state at the last page boundary of the generated text

  int32_t prompt_logprobs_end = 1;  // prompt tokens whose log-probabilities are published
  int32_t progress_told = -1;       // prompt tokens that were told of as done; -1: nothing yet
  double prefill_begin_ms = 0.0;    // the first pass; 0: none yet
  uint64_t prompt_hash = 0;         // hash of salt and tokens, to find equal prompts
  double arrival_ms = 0.0;
  double swapped_ms = 0.0;
  int32_t times_swapped = 0;

  // Speculation.
  std::vector<int32_t> drafts;  // proposed for the next pass
  Proposer proposer = Proposer::text;
  bool drafts_found = false;   // without the model, after a token that was read late
  bool draft_refused = false;  // the constraint refused what the proposer has after them
  std::array<double, kProposers> odds = {};  // decayed shares of accepted drafts, by proposer
  int32_t drafted_after = -1;                // generated tokens when drafts were last looked for
  std::optional<RepeatIndex> repeats;        // of its text, if drafts come from there too
  DraftTrials trials;                        // of the model's layer
  bool mask_was_late = false;                // for a pass that had begun: none does again
  bool drafts_ended = false;                 // the model's layer gave a number that is not finite
  int32_t drafted = 0;                       // in all, and
  int32_t drafts_right = 0;                  // those that were accepted

  std::vector<MediaSpan> media_spans;  // the spans of request.media, for the key
  // Each of request.media has here its entry in the media cache while it is held, else -1, and a
  // flag that says if its rows were found or encoded before.
  std::vector<int32_t> media_held;
  std::vector<char> media_known;
  int32_t media_cached = -1;  // `cached` when the media encoder looked last,
  int32_t media_idle = 0;     // and how often since it changed or its media were encoded
  int32_t next_position = 0;  // rotary position of the first generated token

  double& odds_of(Proposer by) { return odds[static_cast<size_t>(by)]; }
  double odds_of(Proposer by) const { return odds[static_cast<size_t>(by)]; }

  int32_t prompt_size() const { return static_cast<int32_t>(request.prompt.size()); }
  int32_t generated_size() const { return static_cast<int32_t>(generated.size()); }
  /// The index of the token that comes after all known ones.
  uint64_t next_index() const { return request.prompt.size() + generated.size(); }
  PrefixKey prompt_key() const { return {request.cache.salt, request.prompt, media_spans}; }
  /// Rotary position of token `index` of prompt and generated ones.
  std::array<int32_t, 3> position(int32_t index) const {
    if (index < prompt_size() && !request.positions.empty())
      return request.positions[static_cast<size_t>(index)];
    const int32_t p = index < prompt_size() ? index : next_position + index - prompt_size();
    return {p, p, p};
  }
  /// Most tokens its cache will ever hold. The last token is never fed back.
  int32_t tokens_max() const { return prompt_size() + request.max_tokens - 1; }
};

}  // namespace nibble
