// Chooses single tokens, and lays out the rows of a step.
#include "model/draft.h"

#include <algorithm>
#include <cmath>

namespace nibble {

int32_t best_token(std::span<const float> logits, std::span<const uint32_t> allowed,
                   std::span<const int32_t> tokens) {
  int32_t best = -1;
  float most = 0.0F;
  for (size_t i = 0; i < logits.size(); ++i) {
    const size_t token = tokens.empty() ? i : static_cast<size_t>(tokens[i]);
    if (!allowed.empty() && (allowed[token / 32] >> (token % 32) & 1U) == 0) continue;
    if (!std::isfinite(logits[i])) return -1;
    if (best >= 0 && logits[i] <= most) continue;
    best = static_cast<int32_t>(token);
    most = logits[i];
  }
  return best;
}

std::string draft_entry_words(const ModelConfig& config) {
  if (config.draft_layers == 0) return {};
  switch (config.draft_format) {
    case WeightFormat::plain:
      return ", entries of drafts";
    case WeightFormat::nvfp4:
      return ", entries of drafts, plain weights rounded to nvfp4";
    default:
      return ", entries of drafts, plain weights rounded to fp8";
  }
}

Batch draft_step(const DraftBatch& batch, int32_t step, std::span<const int32_t> drafted) {
  Batch rows;
  rows.pages = batch.pages;
  const auto most = static_cast<size_t>(batch.sequences.front().count);
  for (size_t i = 0; i < batch.sequences.size() && batch.sequences[i].count > step; ++i) {
    const DraftSequence& s = batch.sequences[i];
    const int32_t token = step == 0 ? s.token : drafted[i * most + static_cast<size_t>(step) - 1];
    rows.sequences.push_back({.row_begin = rows.rows(),
                              .row_count = 1,
                              .kv_begin = s.kv_begin + step,
                              .page_begin = s.page_begin,
                              .page_count = s.page_count,
                              .arithmetic = Arithmetic::generation});
    rows.tokens.push_back(std::max(token, 0));
  }
  for (size_t axis = 0; axis < 3; ++axis)
    for (size_t i = 0; i < rows.tokens.size(); ++i) {
      const DraftSequence& s = batch.sequences[i];
      rows.positions.push_back(step == 0 ? s.position_before[axis] : s.position + step - 1);
    }
  return rows;
}

std::array<int32_t, 3> position_before(const Batch& batch, const BatchSequence& sequence,
                                       int32_t i) {
  if (i == 0) return sequence.position_before;
  const auto rows = static_cast<size_t>(batch.rows());
  const auto row = static_cast<size_t>(sequence.row_begin + i - 1);
  return {batch.positions[row], batch.positions[rows + row], batch.positions[2 * rows + row]};
}

}  // namespace nibble
