// Sums over the rows of a tally.
#include "plan/speed/speed_bound.h"

#include <cmath>

#include "model/batch.h"

namespace nibble {

double experts_met(int64_t experts, int64_t top_k, int64_t tokens) {
  const auto all = static_cast<double>(experts);
  const double missed = 1.0 - static_cast<double>(top_k) / all;
  return all * (1.0 - std::pow(missed, static_cast<double>(tokens)));
}

StepBytes step_bytes(const ModelConfig& config, const std::vector<WeightRow>& rows,
                     const StepLoad& load) {
  StepBytes bytes;
  bool has_head = false;
  for (const WeightRow& row : rows) has_head = has_head || row.kind == WeightKind::head;
  for (const WeightRow& row : rows) {
    if (row.kind == WeightKind::experts && config.moe) {
      const double met = experts_met(config.moe->experts, config.moe->top_k, load.streams);
      bytes.experts += static_cast<int64_t>(static_cast<double>(row.bytes) * met /
                                            static_cast<double>(config.moe->experts));
    } else if (row.kind == WeightKind::embedding && has_head) {
      bytes.other_weights += row.bytes / config.vocab_rows * load.streams;
    } else {
      bytes.other_weights += row.bytes;
    }
  }
  bytes.state = 2 * load.streams * load.slot_bytes;
  bytes.kv = load.streams * load.context * load.page_bytes / kPageTokens;
  return bytes;
}

double tokens_per_second(const StepBytes& bytes, int64_t streams, double bandwidth_bytes) {
  return static_cast<double>(streams) * bandwidth_bytes / static_cast<double>(bytes.total());
}

}  // namespace nibble
