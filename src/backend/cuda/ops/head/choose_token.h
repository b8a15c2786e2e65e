// The choice of tokens on the device, as model/token_choice.h defines it.
//
// Formula: Sampler::choose() (engine/sample/sampler.h), which is also the oracle: every field of
// the result is the same, bit for bit, in any batch (bench/cuda/choose_token_check.cc). Rows: any
// number up to kRowBlock in a launch, vocabularies up to kChoiceVocabMax. Bytes moved: the logits
// once, 4 V a row; with penalties 2 V more, with a mask V / 8; with log-probabilities the logits a
// second time, from the L2. Nothing may overlap but what the launch reads.
#pragma once

#include <cstdint>

#include "backend/cuda/runtime/launcher.h"
#include "model/token_choice.h"

namespace nibble::cuda {

inline constexpr int kSliceLogits = 8192;  // logits of one thread block
inline constexpr int kChoiceSlicesMax = 64;
inline constexpr int32_t kChoiceVocabMax = kChoiceSlicesMax * kSliceLogits;
inline constexpr int kChoiceListMost = 1024;  // tokens that one thread block ranks
inline constexpr int kTopLogprobsMost = 32;
constexpr int64_t choice_slices(int64_t vocab) { return (vocab + kSliceLogits - 1) / kSliceLogits; }
/// Words of one row of bits, with room for whole slices.
constexpr int64_t choice_mask_words(int64_t vocab) {
  return choice_slices(vocab) * kSliceLogits / 32;
}

/// One row of a launch.
struct ChoiceRow {
  ChoiceRule rule;
  int32_t logits_row = 0;   // row of ChooseArgs::logits
  int32_t mask_row = -1;    // row of ChooseArgs::masks; -1: all tokens are allowed
  int32_t counts_row = -1;  // row of ChooseArgs::counts; -1: nothing is penalized
  int32_t bias_begin = 0;   // first entry in ChooseArgs::biases
  int32_t bias_count = 0;
};

/// ChosenToken of one row.
struct ChosenRow {
  int32_t token;
  int32_t sound;
  int32_t rank;
  int32_t top_count;
  uint64_t mass;
  float logit;
  float best;
  TokenLogit top[kTopLogprobsMost];
};

/// Bytes of ChooseArgs::state for so many rows.
inline constexpr int64_t kChoiceStateRowBytes = 54072;
constexpr int64_t choice_state_bytes(int64_t rows) { return 16 + rows * kChoiceStateRowBytes; }

struct ChooseArgs {
  const float* logits = nullptr;         // [.][vocab]
  const uint32_t* sampleable = nullptr;  // [choice_mask_words(vocab)] bits, clear from vocab on
  const uint32_t* masks = nullptr;       // [.][choice_mask_words(vocab)] bits, any from vocab on
  const uint16_t* counts = nullptr;      // [.][counts_stride], as count_tokens() leaves them
  int64_t counts_stride = 0;             // at least vocab, a multiple of 8
  const LogitBias* biases = nullptr;
  const ChoiceRow* rows_in = nullptr;  // [rows]
  ChosenRow* rows_out = nullptr;       // [rows], may be page-locked host memory
  void* state =
      nullptr;  // choice_state_bytes(rows), zero; clear_choice_state() makes it zero again
  int32_t rows = 0;
  int32_t vocab = 0;  // at most kChoiceVocabMax
};
/// One launch. `top_logprobs` of a rule is at most kTopLogprobsMost.
void choose_tokens(const ChooseArgs& args, const Launcher& launcher);
/// Queues what the next choose_tokens() on this state needs.
void clear_choice_state(void* state, int64_t rows, const Launcher& launcher);

/// A token to count: `index` is counts_row * counts_stride + token. An entry of counts is the
/// number of times its token was generated, at most kCountedMost, and kInPrompt if the prompt has
/// it.
struct CountedToken {
  static constexpr uint32_t kOfPrompt = 1U << 31;
  uint32_t index_and_kind = 0;
};
inline constexpr uint16_t kInPrompt = 1U << 15;
/// Adds tokens to count tables of up to 2^31 entries; a token may be there twice.
void count_tokens(const CountedToken* tokens, int64_t count, uint16_t* counts,
                  const Launcher& launcher);

}  // namespace nibble::cuda
