// Samples cut into passes of a layer: short ones share a pass, a long one goes through alone, in
// chunks that are multiples of a page.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/backend.h"
#include "model/batch.h"

namespace nibble {

struct PassLimits {
  int64_t rows = 0;       // rows of a pass, a multiple of kPageTokens (CHECK)
  int64_t sequences = 0;  // sequences of a pass
};

/// One pass: samples in order, so its rows are consecutive among those of all samples.
struct SamplePass {
  int64_t first_row = 0;
  Batch batch;  // tokens 0, rotary positions of text; sequence i has state slot i
  /// Slots of the samples that begin here.
  std::vector<int32_t> fresh_slots;
};

/// `lengths`: tokens of each sample.
std::vector<SamplePass> sample_passes(std::span<const int64_t> lengths, const PassLimits& limits);
/// The pools that the passes need of a backend.
PoolSizes pools_for(std::span<const SamplePass> passes, const PassLimits& limits);

}  // namespace nibble
