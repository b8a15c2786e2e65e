// The cut, and the batches it makes.
#include "model/sample_passes.h"

#include <algorithm>

#include "base/check.h"

namespace nibble {
namespace {

int32_t pages_of(int64_t tokens) {
  return static_cast<int32_t>((tokens + kPageTokens - 1) / kPageTokens);
}

/// Tokens [begin, begin + count) of a sample.
void add_piece(SamplePass& pass, int64_t begin, int64_t count) {
  Batch& batch = pass.batch;
  const auto slot = static_cast<int32_t>(batch.sequences.size());
  if (begin == 0) pass.fresh_slots.push_back(slot);
  const auto page_begin = static_cast<int32_t>(batch.pages.size());
  const int32_t pages = pages_of(begin + count);
  for (int32_t page = 0; page < pages; ++page) batch.pages.push_back(page_begin + page);
  batch.sequences.push_back({.row_begin = batch.rows(),
                             .row_count = static_cast<int32_t>(count),
                             .kv_begin = static_cast<int32_t>(begin),
                             .page_begin = page_begin,
                             .page_count = pages,
                             .state_in = slot,
                             .state_out = slot});
  batch.tokens.resize(batch.tokens.size() + static_cast<size_t>(count), 0);
}

/// The three axes of a text's positions are alike.
void set_positions(Batch& batch) {
  for (int axis = 0; axis < 3; ++axis)
    for (const BatchSequence& sequence : batch.sequences)
      for (int32_t t = 0; t < sequence.row_count; ++t)
        batch.positions.push_back(sequence.kv_begin + t);
}

}  // namespace

std::vector<SamplePass> sample_passes(std::span<const int64_t> lengths, const PassLimits& limits) {
  CHECK(limits.rows > 0 && limits.rows % kPageTokens == 0 && limits.sequences > 0, "passes of ",
        limits.rows, " rows, ", limits.sequences, " sequences");
  std::vector<SamplePass> passes;
  int64_t row = 0;
  bool open = false;  // the last pass takes more samples
  for (const int64_t length : lengths) {
    CHECK(length > 0, "an empty sample");
    const bool alone = length > limits.rows;
    const bool fits = open && !alone && passes.back().batch.rows() + length <= limits.rows &&
                      static_cast<int64_t>(passes.back().batch.sequences.size()) < limits.sequences;
    for (int64_t begin = 0; begin < length; begin += limits.rows) {
      if (!fits) passes.push_back({.first_row = row, .batch = {}, .fresh_slots = {}});
      const int64_t count = std::min(limits.rows, length - begin);
      add_piece(passes.back(), begin, count);
      row += count;
    }
    open = !alone;
  }
  for (SamplePass& pass : passes) set_positions(pass.batch);
  return passes;
}

PoolSizes pools_for(std::span<const SamplePass> passes, const PassLimits& limits) {
  PoolSizes sizes{.rows_max = static_cast<int32_t>(limits.rows)};
  for (const SamplePass& pass : passes) {
    sizes.pages = std::max(sizes.pages, static_cast<int32_t>(pass.batch.pages.size()));
    sizes.state_slots =
        std::max(sizes.state_slots, static_cast<int32_t>(pass.batch.sequences.size()));
  }
  return sizes;
}

}  // namespace nibble
