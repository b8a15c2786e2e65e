// Golden: one tiny checkpoint of tests/golden/model with what transformers computed from it.
// Made by tools/oracle/model_golden.py, model_quantized_golden.py and mtp_golden.py.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/backend.h"
#include "model/config/config.h"
#include "model/weights/weights.h"

namespace nibble {

using BackendFactory = std::function<Result<std::unique_ptr<Backend>>(
    const Weights&, const ModelConfig&, const BackendOptions&)>;

/// One teacher-forced sequence.
struct GoldenSequence {
  std::vector<int32_t> ids;                       // [T]
  std::vector<std::array<int32_t, 3>> positions;  // [T], (t, h, w)
  std::vector<float> logits;                      // [T, vocab_rows]
  std::vector<float> logits_high;  // quantized cases: without the activations' quantization
  /// Some cases: with keys and values as pages of a format keep them.
  std::map<KvCache, std::vector<float>> logits_kv;
};

/// The drafts of an MTP layer in sequences[0], as mtp_golden.py computes them.
struct GoldenDrafts {
  std::vector<int32_t> places;               // tokens before the newest one
  int32_t steps = 0;                         // drafted tokens at each
  std::vector<std::vector<int32_t>> tokens;  // [places][steps]
  std::vector<float> logits;                 // [places, steps, vocab_rows]
};

struct Golden {
  std::string name;
  std::unique_ptr<Checkpoint> checkpoint;
  ModelConfig config;
  Weights weights;
  std::vector<GoldenSequence> sequences;
  std::vector<int32_t> greedy;            // continuation of sequences[0]; may be empty
  std::optional<GoldenDrafts> drafts;     // then the MTP layer is bound, and there are no logits
  std::unique_ptr<TensorSource> rounded;  // the source that `weights` read, after round_draft()
};

/// The layer that drafts in fewer bits, and the tokens of its own head; none: all.
struct DraftVariant {
  WeightFormat format = WeightFormat::plain;
  std::vector<int32_t> tokens = {};
  bool operator==(const DraftVariant&) const = default;
};
/// Gives a checkpoint with an MTP layer bound another one (model/weights/rounded_draft.h).
void round_draft(Golden& golden, const DraftVariant& variant);
/// Pebble with its MTP layer as the variant has it; no sequences.
Golden load_pebble_that_drafts(const DraftVariant& variant);

/// Cases with plain weights: logits are compared to rounding.
std::vector<std::string> golden_names();
/// True for a case that has logits with pages in this format; the others may have head sizes that
/// it cannot keep.
bool has_kv_golden(const std::string& name, KvCache kind);
/// Cases with quantized weights and activations: distributions are compared.
std::vector<std::string> quantized_golden_names();
/// Cases with an MTP layer.
std::vector<std::string> mtp_golden_names();
/// Aborts (CHECK) when a file of the repository is missing or wrong.
Golden load_golden(const std::string& name);

/// Root mean square of the difference, relative to the standard deviation of `expected`; infinite
/// when a NaN or infinity is anywhere in `found`. Sizes must be equal.
double relative_error(std::span<const float> found, std::span<const float> expected);

}  // namespace nibble
