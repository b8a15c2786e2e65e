// Sampler: from one row of logits to one token, in double precision. The exact oracle of sampling:
// a backend that samples on its device is tested against it. Holds no randomness of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/sample/sampling_params.h"
#include "model/short_list.h"

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

/// The tokens a sequence has seen, as the penalties need them.
struct TokenHistory {
  std::span<const int32_t> prompt;
  std::span<const int32_t> generated;
  std::span<const int32_t> drafted = {};  // after them, not accepted yet
};

class Sampler {
 public:
  /// `sampleable`: one bit per vocabulary row (token t at bit t % 32 of word t / 32); a clear bit
  /// is never sampled or listed: padding rows, and ids the tokenizer does not know.
  Sampler(int32_t vocab_rows, std::vector<uint32_t> sampleable);

  /// One token. `logits` [vocab_rows]; `position`: index in the sequence of the token being made;
  /// `mask`: the constraint's bits, or empty. Errors: corrupt (a logit is NaN or +infinity),
  /// invalid_argument (nothing may be sampled).
  Result<SampledToken> sample(std::span<const float> logits, const SamplingParams& params,
                              const TokenHistory& history, uint64_t position,
                              std::span<const uint32_t> mask = {});

  /// The same token or error from a short list of the row (made with draw_of() of these parameters
  /// and this position), where the list proves which it is. Empty: the whole row is needed; always
  /// so when log-probabilities are wanted.
  std::optional<Result<SampledToken>> sample(const ShortList& list, const SamplingParams& params,
                                             const TokenHistory& history, uint64_t position,
                                             std::span<const uint32_t> mask = {});
  /// The facts of a draw that the maker of a short list needs.
  static RowDraw draw_of(const SamplingParams& params, uint64_t position);

  /// The log-probabilities of `token`, given by the caller: a prompt token under the logits of the
  /// position before it. `logits` [vocab_rows]; `top`: how many of the best are listed as well, 0
  /// or more. Errors: corrupt, as sample().
  Result<PositionLogprobs> logprobs(std::span<const float> logits, int32_t token,
                                    int32_t top) const;

  int32_t vocab_rows() const { return vocab_rows_; }
  std::span<const uint32_t> sampleable() const { return sampleable_; }
  /// All rows allowed.
  static std::vector<uint32_t> all_sampleable(int32_t vocab_rows);

 private:
  struct Candidate {
    double logit = 0.0;
    double weight = 0.0;  // its probability times an unknown constant; set by draw()
    int32_t token = 0;
  };
  /// A strict order.
  static constexpr auto better = [](const auto& a, const auto& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  };
  static double uniform_of(const SamplingParams& params, uint64_t position);
  static Error not_finite_error();
  void gather(std::span<const float> logits, std::span<const uint32_t> mask);
  void add_candidate(double logit, int32_t token);
  int32_t slot_of(int32_t token) const;
  void apply_bias_and_penalties(const SamplingParams& params, const TokenHistory& history);
  int32_t draw(const SamplingParams& params, uint64_t position);
  void keep_best(int32_t count);
  void keep_nucleus(double top_p);
  int32_t pick(double u) const;
  // Sampling from a short list is in sampler_short_list.cc.
  enum class Known : uint8_t { no, yes };
  Known gather(const ShortList& list, const SamplingParams& params, std::span<const uint32_t> mask);
  std::optional<int32_t> draw(const ShortList& list, const SamplingParams& params,
                              uint64_t position, std::span<const uint32_t> mask);
  struct MassBounds;
  MassBounds closed_mass() const;
  Known keep_nucleus(double top_p, const MassBounds& total);
  std::optional<int32_t> pick_drawn(const ShortList& list, double temperature, double u) const;
  PositionLogprobs raw_logprobs(std::span<const float> logits, int32_t chosen, int32_t top) const;

  int32_t vocab_rows_;
  std::vector<uint32_t> sampleable_;
  // Scratch of one call, kept to avoid allocation.
  std::vector<Candidate> candidates_;
  std::vector<int32_t> slot_of_token_;  // index into candidates_, if the token is one
  std::vector<int32_t> count_of_token_;
};

}  // namespace nibble
