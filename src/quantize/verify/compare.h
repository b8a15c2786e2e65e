// Compares a quantized checkpoint with its source: the error of each matrix, the identity of
// everything else. The measure of `verify --against`; running the models is the business of eval/.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace nibble {

struct ComparedLinear {
  std::string module;
  std::string kind;           // without layer and expert numbers
  double relative_error = 0;  // norm of the difference over norm of the source
  int64_t weights = 0;
  double weight_squares = 0;
  double error_squares = 0;
  std::string odd = {};  // what odd_rounding() says of it
};

struct Comparison {
  std::vector<ComparedLinear> linears;  // quantized ones, in model order
  std::vector<std::string> changed;     // other tensors of the source with other bytes
  std::vector<std::string> missing;     // other tensors of the source that are not there
  std::vector<std::string> added;       // tensors that neither the source nor a linear has
  int64_t identical = 0;

  /// nullptr if nothing is quantized.
  const ComparedLinear* worst() const;
  double relative_error() const;  // of all quantized weights together
};

struct CompareOptions {
  /// Bytes of the source done and in all.
  std::function<void(int64_t done, int64_t total)> progress = {};
  std::function<bool()> cancelled = {};
};

/// Errors: those of reading and binding either; corrupt when a linear has another shape;
/// unsupported for a quantized source; cancelled.
Result<Comparison> compare_checkpoints(const Checkpoint& checkpoint, const Checkpoint& source,
                                       const CompareOptions& options = {});

}  // namespace nibble
