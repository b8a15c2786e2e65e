// SamplingParams: how one sequence chooses its tokens. Meanings and order are vLLM's: bias, then
// penalties, temperature, min-p, top-k, top-p; log-probabilities are those of the raw logits. The
// exact arithmetic is in model/token_choice.h.
#pragma once

#include <cstdint>
#include <vector>

#include "model/token_choice.h"

namespace nibble {

struct SamplingParams {
  double temperature = 1.0;         // below kGreedyBelow: the largest logit, lowest id on a tie
  int32_t top_k = 0;                // 0: off; ties beyond the k-th are cut by higher id
  double top_p = 1.0;               // keeps a token while the mass before it is < top_p
  double min_p = 0.0;               // keeps p >= min_p * max p
  double presence_penalty = 0.0;    // subtracted once from each generated token
  double frequency_penalty = 0.0;   // subtracted per occurrence among generated tokens
  double repetition_penalty = 1.0;  // divides positive, multiplies negative logits; prompt too
  std::vector<LogitBias> logit_bias;
  uint64_t seed = 0;
  uint32_t choice = 0;        // index of the choice in a request with n > 1
  int32_t top_logprobs = -1;  // -1: none; 0: of the chosen token; n: also of the n best

  static constexpr double kGreedyBelow = 1e-5;
  bool greedy() const { return temperature < kGreedyBelow; }
  bool wants_logprobs() const { return top_logprobs >= 0; }
};

}  // namespace nibble
