// The part of a card that is this process's, and the defaults of a server there. This is pure
// arithmetic; the numbers come from whoever asked the card.
#pragma once

#include <cstdint>

#include "model/config/config.h"

namespace nibble {

struct CardFacts {
  int64_t card_bytes = 0;     // all of its memory, or of the smaller card that is imitated
  double share = 0.9;         // --gpu-memory-utilization
  int64_t taken_bytes = 0;    // before this process allocated: its context and other processes
  int64_t context_bytes = 0;  // of these, its own context as far as that is known
};

/// The share is one of the whole card and for this process alone, as in vLLM. What others hold (a
/// desktop, a second server) does not count against it, but nor can it be had: where both do not
/// fit beside each other, the others' comes first.
struct CardBudget {
  int64_t memory_bytes = 0;   // for context, weights, workspace and caches
  int64_t asked_bytes = 0;    // the share alone
  int64_t context_bytes = 0;  // of this process
  int64_t others_bytes = 0;
};
CardBudget card_budget(const CardFacts& facts);

/// Bytes for the caches and the workspace, and what they are made of.
struct CardRoom {
  int64_t bytes = 0;  // of the budget, less weights and driver
  int64_t page_bytes = 0;
  int64_t slot_bytes = 0;
};
struct ServingDefaults {
  int32_t sequences_max = 0;  // of --max-num-seqs
  int32_t rows_max = 0;       // of --max-num-batched-tokens
};

/// Rows of a pass: the most of 512, 1,024, ... 8,192 whose workspace takes at most a sixteenth of
/// the room. Sequences: as many as the rest holds with their states and pages for 8,192 tokens
/// each, but states in a quarter of it alone; a multiple of 4 from 4 to 64.
ServingDefaults serving_defaults(const ModelConfig& config, const CardRoom& room);

}  // namespace nibble
