// Checks of the bytes of one tensor: values that are not finite, scales that may not be, all zeros.
// Reads in chunks and keeps nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace nibble {

enum class ValueRule : uint8_t {
  floats,       // BF16, F16, F32, F64: finite
  e4m3_values,  // no NaN code
  block_scale,  // E4M3, finite and not negative: codes below 0x7F
  nvfp4_codes,  // every byte is allowed
  bytes,        // nothing is known
};

struct ValueFacts {
  int64_t bad = 0;                   // elements that break the rule
  int64_t first_bad = -1;            // index of the first
  bool all_zero = true;              // -0 counts as zero
  uint8_t largest_code = 0;          // of block scales
  int64_t zero_codes = 0;            // of block scales
  int64_t top_codes = 0;             // of E2M1 codes: those of +-6
  std::vector<int64_t> zero_slices;  // of a stack: the all-zero ones
};

/// Looks at the tensor as `slices` equal parts (experts of a stack; else 1). `on_chunk` is called
/// with each chunk, in order.
Result<ValueFacts> scan_values(const Checkpoint& checkpoint, const TensorEntry& entry,
                               ValueRule rule, int64_t slices,
                               const std::function<void(std::span<const std::byte>)>& on_chunk);

}  // namespace nibble
