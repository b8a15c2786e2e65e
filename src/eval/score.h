// Scoring: log-probabilities of given text under one model, and how far its distributions are from
// a second model's, or from stored logits. Two Backends in lockstep, chunk by chunk; knows no
// concrete backend.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "eval/divergence.h"
#include "eval/logits_file.h"
#include "eval/stored_logits.h"
#include "eval/teacher_forced.h"
#include "model/backend.h"
#include "model/config/config.h"

namespace nibble {

/// A model ready to be scored; both must outlive the call.
struct ScoredModel {
  Backend* backend = nullptr;
  const ModelConfig* config = nullptr;
};

/// Log-probability of every id after the first of each sequence.
struct TextScore {
  std::vector<std::vector<double>> log_probabilities;  // per sequence, T - 1 of them; natural log
  int64_t predicted() const;
  double sum() const;
  /// exp(-mean log-probability); not meaningful when nothing was predicted.
  double perplexity() const;
};

struct ScoreResult {
  TextScore text;
  std::optional<TextScore> reference_text;
  std::optional<DivergenceSummary> divergence;  // KL(reference || model), over the compared rows
};

struct ScoreRequest {
  std::vector<std::vector<int32_t>> sequences;
  /// The images of each sequence, ascending; empty: none has any. Both models need a vision tower.
  std::vector<std::vector<PlacedImage>> images = {};
  ScoredModel model;
  std::optional<ScoredModel> reference;
  StoredLogits* stored_reference = nullptr;  // in place of a reference model
  /// True for a row (sequence, index) whose distributions are compared; empty: all are.
  std::function<bool(size_t, size_t)> compared = {};
  /// Is told the divergence of each row (sequence, index) that is compared; may be empty.
  std::function<void(size_t, size_t, double)> diverges = {};
  Arithmetic arithmetic = Arithmetic::prompt;  // of all rows, of both models
  LogitsFile* logits = nullptr;                // receives the model's logits
  /// Rows done, rows in all; answers whether to go on.
  enum class Next : uint8_t { go_on, stop };
  std::function<Next(int64_t, int64_t)> progress = {};
};

/// {"ids": [..]} or {"ids": [[..], [..]]} -> sequences. Errors: corrupt; invalid_argument for an
/// empty sequence or an id outside 0..vocab_rows-1.
Result<std::vector<std::vector<int32_t>>> parse_ids(const Json& json, int32_t vocab_rows);

/// Errors: cancelled, invalid_argument (vocabularies differ, too long, images without a tower that
/// takes them), corrupt (logits not finite), no_memory, those of the logits file.
Result<ScoreResult> score(const ScoreRequest& request);

}  // namespace nibble
