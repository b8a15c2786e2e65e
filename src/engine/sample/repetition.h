// RepetitionStop: ends a sequence whose text has come to go round in circles: its last tokens are
// one pattern several times over. Token ids only; exact repeats only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/sample/constraint_chain.h"

namespace nibble {

/// vLLM's `repetition_detection`.
struct RepetitionLimits {
  int32_t pattern_min = 1;  // tokens, at least 1
  int32_t pattern_max = 0;  // at least pattern_min
  int32_t count_min = 2;    // repeats that end it, at least 2
};

class RepetitionStop final : public EndingConstraint {
 public:
  /// pattern_max times count_min bounds the work of a rollback; of accept, pattern_max a token.
  explicit RepetitionStop(const RepetitionLimits& limits);

  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) override;
  /// Stops after the token that completes the last repeat.
  std::optional<size_t> accept(std::span<const int32_t> tokens) override;
  void rollback(size_t count) override;
  FinishReason reason() const override { return FinishReason::repetition; }

 private:
  bool push(int32_t token);
  /// Tokens of the tail that equal the one `period` before them, counted up to what matters.
  int32_t run_of(int32_t period) const;
  int32_t needed(int32_t period) const { return period * (limits_.count_min - 1); }

  RepetitionLimits limits_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> runs_;  // runs_[i]: length of the run of period pattern_min + i
};

}  // namespace nibble
