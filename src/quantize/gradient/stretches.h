// Stretches: samples cut into groups and passes of the sweep, and the random numbers of its labels.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "quantize/gradient/rows.h"

namespace nibble::gradient {

/// Whole samples that follow one another.
struct Stretch {
  int64_t first_token = 0;
  std::vector<SampleRows> samples = {};  // begin: within the stretch
  int64_t rows() const { return samples.back().begin + samples.back().count; }
};

struct StretchLimits {
  int64_t rows = 0;
  int64_t samples = std::numeric_limits<int64_t>::max();
};
/// Stretches within `limits`; a sample of more rows is one of its own.
std::vector<Stretch> stretches_of(std::span<const int64_t> lengths, int64_t first_token,
                                  const StretchLimits& limits);
/// The stretches of a stretch.
std::vector<Stretch> stretches_of(const Stretch& stretch, const StretchLimits& limits);

/// A number in [0, 1) of a token's own, the same wherever the sweep runs.
double label_random(uint64_t seed, int draw, int64_t token);

}  // namespace nibble::gradient
