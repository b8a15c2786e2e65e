// The bytes that one step of generation must read and write, and the tokens a second that a
// bandwidth allows by them. A bound by arithmetic, not a measurement: no launch, no wait and no
// product of matrices takes time here.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config/config.h"
#include "plan/weight_tally.h"

namespace nibble {

/// This is what a step works on.
struct StepLoad {
  int64_t streams = 1;     // sequences that generate, one token each
  int64_t context = 2048;  // tokens each has in its pages
  int64_t page_bytes = 0;
  int64_t slot_bytes = 0;
};

struct StepBytes {
  int64_t experts = 0;        // routed ones
  int64_t other_weights = 0;  // all else but the embedding, of which a step reads rows
  int64_t state = 0;          // read and written
  int64_t kv = 0;
  int64_t total() const { return experts + other_weights + state + kv; }
};

/// Experts that `tokens` tokens meet in a layer, on average, if each takes `top_k` of `experts`
/// independently and all are equally likely: E (1 - (1 - k/E)^T). Real routing repeats itself, so
/// fewer are met.
double experts_met(int64_t experts, int64_t top_k, int64_t tokens);

/// `rows`: of tally_weights, in the file.
StepBytes step_bytes(const ModelConfig& config, const std::vector<WeightRow>& rows,
                     const StepLoad& load);

/// Tokens a second of all streams together.
double tokens_per_second(const StepBytes& bytes, int64_t streams, double bandwidth_bytes);

}  // namespace nibble
