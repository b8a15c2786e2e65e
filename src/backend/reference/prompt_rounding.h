// The places where the prompt kernels of a card keep BF16 between products, so that a difference to
// them is a difference of sums, not of roundings. Not the truth: for tests of such kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/batch.h"
#include "tensor/float_formats.h"

namespace nibble {

/// bf16: rows of prompts have q, k, v and z rounded as they leave their products; then normed and
/// rotated queries; queries, keys and values of a delta net as the rule reads them; its outputs;
/// and probabilities, relative to the highest score up to the end of their page. What the inputs of
/// linears are declared to be is made of their BF16 values, those of generated rows too.
enum class PromptRounding : uint8_t { none, bf16 };

namespace reference {

/// The rounding of one sequence: none unless it is a prompt.
inline PromptRounding rounding_of(PromptRounding rounding, const BatchSequence& sequence) {
  return sequence.arithmetic == Arithmetic::prompt ? rounding : PromptRounding::none;
}

template <typename T>
void round_all(std::span<T> values) {
  for (T& value : values) value = round_to_bf16(static_cast<float>(value));
}

/// Rounds the rows of values [T, width] that belong to prompts.
inline void round_prompt_rows(PromptRounding rounding, const Batch& batch,
                              std::vector<float>& values) {
  const size_t width = values.size() / batch.tokens.size();
  for (const BatchSequence& sequence : batch.sequences)
    if (rounding_of(rounding, sequence) == PromptRounding::bf16)
      round_all(std::span(values).subspan(static_cast<size_t>(sequence.row_begin) * width,
                                          static_cast<size_t>(sequence.row_count) * width));
}

}  // namespace reference
}  // namespace nibble
