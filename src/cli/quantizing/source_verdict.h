// The verdict of `nibble verify --against SRC` on what needs no running model: weights, tensors,
// config.json and the files beside them. Distributions are judged by verify_against.cc.
#pragma once

#include <string>

#include "quantize/verify/compare.h"

namespace nibble {

enum class Standing : uint8_t { ok, past };

/// Lines for people; those of what is past its bar decide the exit code.
struct Verdict {
  std::string text;
  int64_t bad = 0;
  void add(Standing standing, const std::string& line) {
    text += concat(standing == Standing::ok ? "ok    " : "PAST  ", line, "\n");
    bad += standing == Standing::past;
  }
};

/// Matrices past `error_max`, tensors that are not the source's, and rounding that was changed.
void judge_weights(const Comparison& compared, double error_max, Verdict& verdict);
/// config.json and the files beside the weights. Errors: io, unsupported.
Result<void> judge_papers(const Checkpoint& checkpoint, const Checkpoint& source, Verdict& verdict);

}  // namespace nibble
