// The messages of the engine: plain, in order for each sequence: PromptLogprobs and PromptProgress
// if asked for, any number of NewTokens, then exactly one Finished.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/sample/sampler.h"
#include "engine/sequence.h"

namespace nibble {

struct NewTokens {
  uint64_t id = 0;
  std::vector<int32_t> tokens;
  std::vector<PositionLogprobs> logprobs;  // one per token, or none
};

/// Log-probabilities of prompt tokens [begin, begin + positions.size()), given the tokens before
/// them. begin >= 1: the first token of a prompt has none. They arrive in order and before any
/// NewTokens.
struct PromptLogprobs {
  uint64_t id = 0;
  int32_t begin = 1;
  std::vector<PositionLogprobs> positions;
};

/// Once with what the prefix cache had, then after each pass that computed a part of the prompt;
/// `processed` grows and ends at `total`.
struct PromptProgress {
  uint64_t id = 0;
  int32_t total = 0;        // tokens of the prompt
  int32_t cached = 0;       // tokens taken from the prefix cache
  int32_t processed = 0;    // tokens done, those from the cache included
  double elapsed_ms = 0.0;  // since the first pass began
};

struct Finished {
  uint64_t id = 0;
  FinishReason reason = FinishReason::stop;
  std::string error;                              // for a person, when reason is error
  int32_t stop_token = -1;                        // the stop id that ended it; it was not published
  std::optional<PositionLogprobs> stop_logprobs;  // of the stop token, where they are wanted
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;  // sampled ones, the stop token included
  int32_t cached_tokens = 0;      // prompt tokens taken from the prefix cache
  int32_t drafted_tokens = 0;     // proposed and computed, and
  int32_t accepted_tokens = 0;    // those that the model agreed with
};

using EngineEvent = std::variant<NewTokens, PromptLogprobs, PromptProgress, Finished>;

}  // namespace nibble
