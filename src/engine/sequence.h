// Sequence: one generated text as the engine sees it: token ids, cache pages, a state slot, limits,
// a phase. A request with n choices is n sequences. No text here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/token_constraint.h"
#include "engine/sampler.h"
#include "engine/sampling_params.h"

namespace nibble {

/// What a caller asks the engine for.
struct SequenceRequest {
  uint64_t id = 0;              // chosen by the caller, unique among live sequences
  std::vector<int32_t> prompt;  // at least one id
  int32_t max_tokens = 1;       // generated tokens, at least 1
  int32_t min_tokens = 0;       // stop ids are not sampled before this many
  std::vector<int32_t> stop_ids;
  SamplingParams sampling;
  std::unique_ptr<TokenConstraint> constraint;  // may be empty
};

enum class FinishReason : uint8_t { stop, length, cancelled, error };

enum class Phase : uint8_t {
  waiting,  // holds no pages and no slot
  prefill,  // some prompt tokens are not in the cache yet
  decode,   // one token to feed per step
};

struct Sequence {
  SequenceRequest request;
  Phase phase = Phase::waiting;
  int32_t cached = 0;              // tokens in the pages and in the state
  std::vector<int32_t> generated;  // published ones; the last is not in the cache yet
  std::vector<int32_t> pages;
  int32_t state_slot = -1;

  int32_t prompt_size() const { return static_cast<int32_t>(request.prompt.size()); }
  int32_t generated_size() const { return static_cast<int32_t>(generated.size()); }
  /// Most tokens its cache will ever hold. The last token is never fed back.
  int32_t tokens_max() const { return prompt_size() + request.max_tokens - 1; }
};

}  // namespace nibble
