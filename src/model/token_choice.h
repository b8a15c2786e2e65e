// TokenChoice: how the token after a row of logits is chosen, in numbers that a host and a device
// compute alike. Logits and penalties are F32 with every operation rounded by itself, probabilities
// are integers, so their sums do not depend on an order: whoever chooses finds the same token and
// the same log-probabilities, bit for bit. engine/sample/sampler.h chooses on the host and is the
// oracle of a backend that chooses where it computes.
//
// The order of operations: bias; penalties; then, among the tokens that the vocabulary and the mask
// allow: weights relative to the best token, min-p, top-k, top-p, and a draw over ascending token
// ids. Of two tokens the better one has the larger logit or, among equal logits, the lower id. A
// logit that bias and penalties leave as not a number counts as -infinity.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#if defined(__CUDACC__)
#define NIBBLE_CHOICE_FN __host__ __device__ __forceinline__
#else
#define NIBBLE_CHOICE_FN inline
#endif

namespace nibble {

struct LogitBias {
  int32_t token = 0;
  float bias = 0.0F;
};

/// The tokens a sequence has seen, as the penalties need them.
struct TokenHistory {
  std::span<const int32_t> prompt;
  std::span<const int32_t> generated;
  std::span<const int32_t> drafted = {};  // after them, not accepted yet
  /// Names the sequence: equal numbers mean the same prompt, and generated tokens that only grow.
  uint64_t serial = 0;
};

/// Occurrences of a token beyond this many are not counted by the frequency penalty.
inline constexpr int32_t kCountedMost = 32767;

/// The numbers of one draw.
struct ChoiceRule {
  static constexpr uint64_t kKeepAll = ~uint64_t{0};

  float scale = 0.0F;         // log2(e) / temperature; 0: the best token is taken
  float repetition = 1.0F;    // divides positive, multiplies other logits of tokens seen
  float presence = 0.0F;      // subtracted from each generated token
  float frequency = 0.0F;     // times its occurrences, added to that
  uint64_t min_weight = 0;    // tokens of less weight are dropped
  uint64_t top_p = kKeepAll;  // in units of 2^-64: a token stays while the better ones have less
                              // than this share of the weight; kKeepAll: all stay
  uint64_t u = 0;             // uniform random bits
  int32_t top_k = 0;          // tokens kept, the best ones; 0: all
  int32_t top_logprobs = -1;  // -1: no log-probabilities; n: also of the n best tokens

  bool penalizes() const { return repetition != 1.0F || presence != 0.0F || frequency != 0.0F; }
};

/// One row's choice. What the spans show must stay until the pass has ended.
struct TokenChoice {
  ChoiceRule rule;
  std::span<const LogitBias> bias;  // applied one after the other
  TokenHistory history;
  std::span<const uint32_t> mask;  // a bit per vocabulary row, set: allowed; empty: all. May be set
                                   // as late as head() is called
};

struct TokenLogit {
  int32_t token = 0;
  float logit = 0.0F;
};

/// The outcome. Everything after `token` is about the raw logits and only there with
/// ChoiceRule::top_logprobs >= 0.
struct ChosenToken {
  int32_t token = -1;  // -1: no token may follow
  bool sound = true;   // false: a logit of the row is NaN or +infinity, and the rest means nothing
  TokenLogit chosen;
  float best = 0.0F;            // the largest logit of the row
  uint64_t mass = 0;            // sum of choice_weight(logit, best, kLog2E) over all tokens
  int32_t rank = 1;             // 1 + the number of sampleable tokens better than the chosen one
  std::vector<TokenLogit> top;  // the best sampleable ones, best first
};

inline constexpr float kLog2E = 1.44269504F;
inline constexpr int kWeightBits = 44;  // the best token weighs 2^44, 2^19 of them less than 2^64

namespace choice {
// Operations that no compiler may contract: CUDA's round by themselves, and the host code that uses
// this header is compiled with -ffp-contract=off.
#if defined(__CUDA_ARCH__)
NIBBLE_CHOICE_FN float sum(float a, float b) { return __fadd_rn(a, b); }
NIBBLE_CHOICE_FN float difference(float a, float b) { return __fsub_rn(a, b); }
NIBBLE_CHOICE_FN float product(float a, float b) { return __fmul_rn(a, b); }
NIBBLE_CHOICE_FN float quotient(float a, float b) { return __fdiv_rn(a, b); }
NIBBLE_CHOICE_FN uint64_t high_product(uint64_t a, uint64_t b) { return __umul64hi(a, b); }
#else
NIBBLE_CHOICE_FN float sum(float a, float b) { return a + b; }
NIBBLE_CHOICE_FN float difference(float a, float b) { return a - b; }
NIBBLE_CHOICE_FN float product(float a, float b) { return a * b; }
NIBBLE_CHOICE_FN float quotient(float a, float b) { return a / b; }
NIBBLE_CHOICE_FN uint64_t high_product(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
}
#endif
}  // namespace choice

/// floor(2^44 * 2^((logit - best) * scale)), but for an error of 2^-22 of itself; 2^44 where the
/// two are equal. `logit` is at most `best`, which is finite.
NIBBLE_CHOICE_FN uint64_t choice_weight(float logit, float best, float scale) {
  constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23: sums with it are whole numbers
  constexpr float kMantissa = 8388608.0F;  // 2^23
  const float x = choice::product(choice::difference(logit, best), scale);
  if (!(x >= static_cast<float>(-kWeightBits - 1))) return 0;
  const float whole = choice::difference(choice::sum(x, kRounder), kRounder);
  const float f = choice::difference(x, whole);  // -0.5 to 0.5
  // 2^f to 2^-28 of itself before rounding: a least-maximum fit with the constant term 1.
  float p = 0x1.41fbbcp-13F;
  p = choice::sum(choice::product(p, f), 0x1.5f3e54p-10F);
  p = choice::sum(choice::product(p, f), 0x1.3b2d4cp-7F);
  p = choice::sum(choice::product(p, f), 0x1.c6aee8p-5F);
  p = choice::sum(choice::product(p, f), 0x1.ebfbdcp-3F);
  p = choice::sum(choice::product(p, f), 0x1.62e430p-1F);
  p = choice::sum(choice::product(p, f), 1.0F);
  const auto mantissa = static_cast<uint64_t>(static_cast<uint32_t>(choice::product(p, kMantissa)));
  return (mantissa << (kWeightBits - 23)) >> static_cast<int>(-whole);
}

/// A token stays while the weight of the better ones is below this. `total`: of all that are left
/// after min-p and top-k.
NIBBLE_CHOICE_FN uint64_t nucleus_bound(uint64_t total, uint64_t top_p) {
  const uint64_t bound = choice::high_product(total, top_p);
  return bound > 0 ? bound : 1;  // the best token always stays
}

/// The chosen token is the first, by id, with which the weights of the kept ones exceed this.
NIBBLE_CHOICE_FN uint64_t choice_target(uint64_t kept, uint64_t u) {
  return choice::high_product(kept, u);
}

/// The logit of a token that was seen, with its penalties. `count`: occurrences among generated
/// tokens, at most kCountedMost; 0: only the prompt has it.
NIBBLE_CHOICE_FN float penalized(float logit, const ChoiceRule& rule, int32_t count) {
  logit = logit > 0.0F ? choice::quotient(logit, rule.repetition)
                       : choice::product(logit, rule.repetition);
  if (count == 0) return logit;
  const float uses = choice::product(rule.frequency, static_cast<float>(count));
  return choice::difference(logit, choice::sum(rule.presence, uses));
}

/// -infinity instead of NaN.
NIBBLE_CHOICE_FN float ordered_logit(float logit) {
  return logit == logit ? logit : -__builtin_huge_valf();
}

}  // namespace nibble
