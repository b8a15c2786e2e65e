// The figures of scored text, as words and as JSON: what `score` and `eval perplexity|kl` print.
#pragma once

#include <optional>
#include <string>

#include "cli/serving/model_loader.h"
#include "eval/score.h"

namespace nibble {

struct ScoreReport {
  ModelRequest request;
  const Backend* backend = nullptr;
  std::optional<ModelRequest> reference_request;
  const Backend* reference = nullptr;
  std::string stored_reference;  // the file, in place of a reference model
  size_t sequences = 0;
  ScoreResult result;
};

std::string score_text(const ScoreReport& report);
Json score_json(const ScoreReport& report);

}  // namespace nibble
