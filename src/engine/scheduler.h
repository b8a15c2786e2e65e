// Scheduler: which sequences advance in the next pass, and by how many tokens. A pure function of
// what it is shown: no device, no clock, no memory of its own.
// Policy: one row for every decoding sequence, then prompts in order of arrival until the row
// budget is spent, cut only at multiples of 64. Sequences are admitted first come, first served,
// when pages for their longest possible length are free; they are never preempted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "model/batch.h"

namespace nibble {

/// What the scheduler may know of a sequence.
struct SequenceView {
  Phase phase = Phase::waiting;
  int32_t prompt_size = 0;
  int32_t cached = 0;
  int32_t tokens_max = 0;
};

struct SchedulerLimits {
  int32_t rows_max = 0;       // of one pass; at least sequences_max + kPageTokens
  int32_t sequences_max = 0;  // running at once
};

struct FreeResources {
  int32_t pages = 0;
  int32_t state_slots = 0;
};

struct ScheduledRows {
  int32_t sequence = 0;  // index into the views
  int32_t rows = 0;
  Arithmetic arithmetic = Arithmetic::prompt;
};

struct Schedule {
  std::vector<int32_t> admitted;    // indices of waiting sequences that start now
  std::vector<ScheduledRows> rows;  // may name admitted ones
};

/// `sequences` in order of arrival.
Schedule schedule(std::span<const SequenceView> sequences, const FreeResources& free,
                  const SchedulerLimits& limits);

}  // namespace nibble
