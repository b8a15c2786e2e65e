// Batch: one forward pass as plain arrays. Built by the engine, read by every backend.
// T rows (tokens), B sequences; the rows of a sequence are adjacent and in order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "model/token_choice.h"

namespace nibble {

class Taps;  // model/taps.h

inline constexpr int kPageTokens = 64;  // tokens of one KV page

/// Prompt tokens are computed in prompt arithmetic, generated ones in generation arithmetic; each
/// is bit-invariant to batch, slot and schedule. A backend may make both the same.
enum class Arithmetic : uint8_t { prompt, generation };

/// The state that a pass leaves in a sequence's state slot.
enum class StateWrite : uint8_t {
  rows,      // the state after the last row
  replayed,  // the state after `replay` saved inputs; the inputs of this pass's rows are saved
             // beside it: they are drafts, and the next pass replays those that were accepted
};

struct BatchSequence {
  int32_t row_begin = 0;   // first of its rows
  int32_t row_count = 0;   // 1..n
  int32_t kv_begin = 0;    // tokens already in its pages; row i has index kv_begin + i
  int32_t page_begin = 0;  // into Batch::pages
  int32_t page_count = 0;  // covers kv_begin + row_count tokens
  int32_t state_in = 0;    // state slot read before the first row
  int32_t state_out = 0;   // state slot written after the last row (may equal state_in)
  Arithmetic arithmetic = Arithmetic::prompt;
  int32_t replay = 0;  // saved inputs in state_in, applied in order before the first row
  StateWrite write = StateWrite::rows;
  /// Rotary position of token kv_begin - 1, for a backend that drafts; of no use if there is none.
  std::array<int32_t, 3> position_before = {};
};

/// The number of rows from row i until a state of StateCache::bf16 is rounded next: 1 for generated
/// rows; in a prompt, up to the next multiple of kPageTokens or the end of the pass. So a prompt
/// cut at multiples of kPageTokens is rounded at the same places as a whole one.
inline int32_t state_rounding_rows(const BatchSequence& sequence, int32_t i) {
  if (sequence.arithmetic == Arithmetic::generation) return 1;
  return std::min(kPageTokens - (sequence.kv_begin + i) % kPageTokens, sequence.row_count - i);
}

/// A row whose embedding is not its token's row of the table: one of an image or a video.
struct EmbeddingOverride {
  int32_t row = 0;
  const float* embedding = nullptr;  // [hidden], host memory, valid during embed; null: `place`
  int32_t place = -1;                // in the backend's media rows
};

/// Copy of the recurrent state after a row, taken during the pass.
struct StateSnapshot {
  int32_t row = 0;
  int32_t slot = 0;
};

struct Batch {
  std::vector<int32_t> tokens;  // [T] host ids
  /// [T], or empty: the row's token is the one that the head that was begun last chooses for this
  /// logit row, and tokens[row] means nothing; -1: it is tokens[row]. See BlockWalk::begin_head.
  std::vector<int32_t> carried;
  std::vector<int32_t> positions;             // [3, T] rotary positions: t, h, w
  std::vector<BatchSequence> sequences;       // [B]
  std::vector<int32_t> pages;                 // page tables, concatenated
  std::vector<StateSnapshot> snapshots;       // rows whose state is written, and where
  std::vector<EmbeddingOverride> embeddings;  // ascending rows
  std::vector<int32_t> logit_rows;            // rows whose logits are wanted, ascending
  /// One per logit row: a backend that can choose tokens gives those instead of logits. Empty: all
  /// logits are wanted on the host.
  std::vector<TokenChoice> choices;
  Taps* taps = nullptr;  // what calibration wants to know of this pass; most backends know none

  int rows() const { return static_cast<int>(tokens.size()); }
};

}  // namespace nibble
