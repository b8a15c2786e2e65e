// convert --repair: the same checkpoint with its quantization_config written anew from the tensors
// that are there. Every weight file is hard-linked, so no weight changes. For files whose patterns
// other engines do not match.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace nibble {

struct RepairReport {
  int64_t linears = 0;       // quantized ones
  int64_t linked_files = 0;  // of weights
};

/// Errors: unsupported (not quantized, or in a dialect this program does not write); otherwise as
/// quantize().
Result<RepairReport> repair_config(const Checkpoint& checkpoint,
                                   const std::filesystem::path& output);

}  // namespace nibble
