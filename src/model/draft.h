// The drafts that a model makes by itself, with its MTP layer (model.md 3): their batch, and the
// choice of a token. The layer's keys and values are one more KV layer of the same pages: the entry
// of token t + 1, made of its embedding and the hidden row of token t, lies in place t + 1, at the
// rotary position of token t, so a page depends on the tokens it covers and those before. Place 0
// has no entry: nobody attends to it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/batch.h"
#include "model/config/config.h"

namespace nibble {

inline constexpr int kDraftEntryFirst = 1;  // the first place that has an entry

/// A sequence that drafts: `kv_begin` tokens are in its pages, the next one is known.
struct DraftSequence {
  int32_t kv_begin = 0;    // at least 1
  int32_t page_begin = 0;  // into DraftBatch::pages
  int32_t page_count = 0;  // covers kv_begin + count tokens
  int32_t state = 0;       // its slot, which has the hidden row of token kv_begin - 1
  int32_t replay = 0;      // saved inputs that the next pass will replay: as BatchSequence
  int32_t token = 0;       // the newest: number kv_begin
  std::array<int32_t, 3> position_before = {};  // position of token kv_begin - 1
  int32_t position = 0;                         // position of the newest token, on all axes
  int32_t count = 0;                            // tokens to draft, at least 1
};

struct DraftBatch {
  std::vector<DraftSequence> sequences;  // in descending order of `count`
  std::vector<int32_t> pages;            // page tables, concatenated
  /// Asks a backend that keeps logits to itself for those of the last step.
  bool wants_logits = false;
};

/// Valid until the next embed or draft.
struct DraftOutput {
  /// [sequences, most drafts of one]; -1 from where a sequence was to draft no more, or where its
  /// logits are not finite.
  std::span<const int32_t> tokens;
  /// Logits of the last step, [sequences that took it, ModelConfig::draft_head_rows()]; empty from
  /// a backend that keeps them elsewhere, unless they are wanted.
  std::span<const float> logits;
};

/// The token that is drafted: the best of those whose bit is set, of equal ones the first; -1 if
/// the logit of one of them is not finite, or none is set. No bits: all may be drafted. `tokens`:
/// the token of each logit, in rising order; empty: its number.
int32_t best_token(std::span<const float> logits, std::span<const uint32_t> allowed,
                   std::span<const int32_t> tokens = {});

/// The words of a description of arithmetic about the entries of the layer that drafts: nothing
/// without one.
std::string draft_entry_words(const ModelConfig& config);

/// The rows of one step of a draft, one for each sequence that takes it, at the positions of their
/// entries. `drafted` [sequences, most of one] has the tokens of the steps before; a sequence whose
/// last one is -1 goes on with token 0, and what comes of it does not count.
Batch draft_step(const DraftBatch& batch, int32_t step, std::span<const int32_t> drafted);

/// The rotary position of the token before row i of a sequence: that of the row's entry.
std::array<int32_t, 3> position_before(const Batch& batch, const BatchSequence& sequence,
                                       int32_t i);

}  // namespace nibble
