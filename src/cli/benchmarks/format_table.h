// The figures of `nibble bench formats`, as a table and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "eval/score.h"

namespace nibble {

/// One weight format, with its divergence from the source (scores.divergence).
struct FormatRow {
  std::string format;
  std::string rule;
  int64_t weights = 0;
  double bits = 0.0;            // bits of a weight, with its scales
  double relative_error = 0.0;  // norm of the error over norm of the weights
  ScoreResult scores;
};

/// A row of headings, one of the source, then one of each; `rows` is not empty.
std::vector<std::vector<std::string>> format_table(const std::vector<FormatRow>& rows);
/// {"machine", "perplexity" of the source, "formats": [..]}.
Json format_json(const std::vector<FormatRow>& rows);

}  // namespace nibble
