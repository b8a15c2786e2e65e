// Compares what lies beside the weights of a quantized checkpoint with its source: every key of
// config.json, tokenizer, templates, generation config. Weights are compared by compare.h.
#pragma once

#include <vector>

#include "checkpoint/checkpoint.h"
#include "quantize/verify/verify.h"

namespace nibble {

struct PaperComparison {
  int64_t keys = 0;   // of config.json that are the source's
  int64_t files = 0;  // that say what the source's say
  /// error: a value or a file that the source has is another or gone. warning: one was added, or
  /// a key of a file other than config.json is gone, as newer libraries save less.
  std::vector<Finding> differences;
};

/// JSON is compared as values. What saving with another library changes without changing the model
/// is no difference: quantization_config, dtype, the version of transformers and the names it gives
/// to types, processor_config.json for two files; README.md and other Markdown. Errors: io,
/// unsupported as companion_files().
Result<PaperComparison> compare_papers(const Checkpoint& checkpoint, const Checkpoint& source);

}  // namespace nibble
