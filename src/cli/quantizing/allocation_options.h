// --target-bytes and --target-kl of `nibble quantize`: options to an allocation, and the recipe
// that it makes.
#pragma once

#include <optional>
#include <string_view>

#include "cli/terminal.h"
#include "cli/verb.h"
#include "quantize/allocate/allocate.h"

namespace nibble {

inline constexpr Option kTargetBytesOption = {
    "target-bytes", "BYTES", "",
    "choose NVFP4, FP8 or neither for each linear that the recipe quantizes, so that all tensors "
    "take at most this (22GB, 18.5GiB) and the predicted loss is least; needs --calib"};
inline constexpr Option kTargetKlOption = {
    "target-kl", "NATS", "",
    "the same for the least bytes with at most this predicted KL divergence of a token"};

/// "22GB", "18.5GiB", "900 MB", and all that read_size takes. Nothing: no size.
std::optional<int64_t> read_byte_count(std::string_view text);

/// Nothing if neither option is given. Errors: invalid_argument for both at once, one without
/// --calib, a wrong value.
Result<std::optional<AllocationTarget>> read_allocation_target(const Arguments& arguments);

struct AllocationWork {
  const Arguments& arguments;  // the options of calibration data
  const Checkpoint& checkpoint;
  const Recipe& recipe;  // whose linears are the candidates
  Dialect dialect = Dialect::compressed_tensors;
  AllocationTarget target;
  int threads = 0;
  int64_t memory_bytes_max = 0;  // 0: no limit
  Progress::Display display = Progress::Display::shown;
};

struct AllocatedRecipe {
  Allocation allocation;
  Recipe recipe;
};

/// Runs the sweep over the data, chooses, and says both on the terminal. Errors: those of
/// AllocationCandidates, of reading data and of the sweep; no_memory with the numbers; cancelled.
Result<AllocatedRecipe> allocate_formats(const AllocationWork& work, Terminal& terminal);

}  // namespace nibble
