// Sampler: from one row of logits to one token, in the arithmetic of model/token_choice.h. A
// backend that chooses tokens on its device is tested against it bit for bit. It holds no
// randomness of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/sample/sampling_params.h"
#include "model/token_choice.h"

namespace nibble {

struct TokenLogprob {
  int32_t token = 0;
  double logprob = 0.0;
};

/// Log-probabilities of one sampled position, natural log, from the raw logits.
struct PositionLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // best first, lowest id first among equals
  int32_t rank = 1;               // 1 + the number of listable tokens that are likelier than chosen
};

struct SampledToken {
  int32_t token = 0;
  std::optional<PositionLogprobs> logprobs;
};

class Sampler {
 public:
  /// `sampleable`: one bit per vocabulary row (token t at bit t % 32 of word t / 32); a clear bit
  /// is never sampled or listed: padding rows, and ids the tokenizer does not know.
  Sampler(int32_t vocab_rows, std::vector<uint32_t> sampleable);

  /// The choice of the token at index `position` of a sequence. The spans are those of the
  /// arguments.
  static TokenChoice choice_of(const SamplingParams& params, const TokenHistory& history,
                               uint64_t position, std::span<const uint32_t> mask = {});

  /// One token. `logits` [vocab_rows].
  ChosenToken choose(std::span<const float> logits, const TokenChoice& choice);

  /// The token and the log-probabilities that a choice by `rule` has found, here or on a device.
  /// Errors: corrupt (a logit is NaN or +infinity), invalid_argument (nothing may be sampled).
  static Result<SampledToken> result_of(const ChosenToken& chosen, const ChoiceRule& rule);

  /// choice_of(), choose() and result_of() in one.
  Result<SampledToken> sample(std::span<const float> logits, const SamplingParams& params,
                              const TokenHistory& history, uint64_t position,
                              std::span<const uint32_t> mask = {});

  /// The log-probabilities of `token`, given by the caller: a prompt token under the logits of the
  /// position before it. `logits` [vocab_rows]; `top`: how many of the best are listed as well, 0
  /// or more. Errors: corrupt, as result_of().
  Result<PositionLogprobs> logprobs(std::span<const float> logits, int32_t token,
                                    int32_t top) const;

  int32_t vocab_rows() const { return vocab_rows_; }
  std::span<const uint32_t> sampleable() const { return sampleable_; }
  /// All rows allowed.
  static std::vector<uint32_t> all_sampleable(int32_t vocab_rows);

 private:
  struct Candidate {
    float logit = 0.0F;
    int32_t token = 0;
    uint64_t weight = 0;  // set by draw()
  };
  /// A strict order.
  static constexpr auto better = [](const auto& a, const auto& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  };
  void gather(std::span<const float> logits, std::span<const uint32_t> mask);
  int32_t slot_of(int32_t token) const;
  void apply_bias(std::span<const LogitBias> bias);
  void apply_penalties(const ChoiceRule& rule, const TokenHistory& history);
  int32_t draw(const ChoiceRule& rule);
  void keep_best(int32_t count);
  void keep_nucleus(uint64_t top_p);
  int32_t pick(uint64_t u) const;
  void describe(std::span<const float> logits, int32_t token, int32_t top, ChosenToken& out) const;

  int32_t vocab_rows_;
  std::vector<uint32_t> sampleable_;
  // Scratch of one call, kept to avoid allocation.
  std::vector<Candidate> candidates_;
  std::vector<int32_t> slot_of_token_;  // index into candidates_, if the token is one
  std::vector<int32_t> count_of_token_;
};

}  // namespace nibble
